#!/bin/sh
# Ends the process groups of a test run that was itself killed: reads "+GROUP" and "-GROUP" lines
# from the test binary and, once that pipe closes, kills every group that was not taken back.
# Started in a group of its own, so that Ctrl-C reaches the tests but not the one who cleans up.
groups=""
while read -r line; do
    group=${line#?}
    case $line in
    +*) groups="$groups $group " ;;
    -*) groups=$(echo "$groups" | sed "s/ $group / /") ;;
    esac
done
for group in $groups; do
    # "-9 --" is not understood by dash.
    kill -s KILL -- "-$group" 2>/dev/null
done
exit 0
