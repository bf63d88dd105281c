
# Ids, functions and jobs, which the master knows; nothing is published for them. The rest is completed by
# the lines above.
function __fish_saltern_known
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    command $words[1] complete line -- $words[2..-1] "$current" 2>/dev/null
end
complete -c saltern -n 'count (__fish_saltern_known)' -f -a '(__fish_saltern_known)'
