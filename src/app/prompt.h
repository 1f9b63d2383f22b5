/* The prompt of `run`: the text of -p, the file of -f, or stdin. */
#ifndef APP_PROMPT_H
#define APP_PROMPT_H

#include "app/app.h"

/* UTF-8, checked; a final line end of a file or of stdin is left out. *text: bt_free by the caller. */
bt_status bt_prompt_read(bt_app *a, char **text, size_t *size);

#endif
