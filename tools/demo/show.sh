#!/usr/bin/env bash
# What `make demo` shows: models/demo-k2 completing, thinking, writing JSON and calling a tool, and models/demo-k3 likewise.
#
# usage: tools/demo/show.sh PROGRAM
#
# Reasoning is shown, dimmed, on a terminal only; where there is none (a log, a pipe) script(1) lends one.
set -eu
unset BALTORO_MODEL # what is shown are the models of this repository

program=$1
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
if [ ! -t 1 ] && [ -z "${DEMO_HAS_TERMINAL-}" ] && command -v script >/dev/null; then
    exec env DEMO_HAS_TERMINAL=1 script -qec "$(printf '%q ' "${BASH_SOURCE[0]}" "$program")" /dev/null </dev/null
fi

# show WORDS...: the command as one would type it, then what it says
show() {
    local word line='$ baltoro'
    for word; do
        case $word in
        *[!A-Za-z0-9_./-]*) line+=" \"$word\"" ;;
        *) line+=" $word" ;;
        esac
    done
    printf '\n%s\n' "$line"
    "$program" "$@" --temperature 0 -q
}

show run -p "The capital of France is" -n 12
show run --chat -p "What is 478 + 256?"
show run --chat --reasoning-effort low -p "List three European countries and their capitals as JSON."
show run --chat --tools tools/demo/tools.json -p "What is the weather like in Turin?"
show run --chat --tools tools/demo/tools.json --messages tools/demo/weather.json

printf '\nThe same skills in the architecture of Kimi K3:\n'
show run models/demo-k3 -p "The days of the week are"
show run models/demo-k3 --chat -p "What is 702 - 356?"
show run models/demo-k3 --chat --reasoning-effort low -p "List three African countries and their capitals as JSON."
show run models/demo-k3 --chat --tools tools/demo/tools.json -p "What is the weather like in Salzburg?"
printf '\nNow you: %s chat\n' "$program"
