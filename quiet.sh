#!/bin/bash
echo "LEAD: the time for measuring is over (05:13). Write down the figures you have (README, bench/NOTES.md, docs), commit, and send your final report now." >&2
exit 99
