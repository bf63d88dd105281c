
# Ids, functions and jobs, which the master knows; nothing is published for them. The rest is completed by
# the function above.
_saltern_known() {
    mapfile -t COMPREPLY < <(
        "${COMP_WORDS[0]}" complete line -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null
    )
    [[ ${#COMPREPLY[@]} -eq 0 ]] || return 0
    _saltern "$@"
}
complete -F _saltern_known -o bashdefault -o default saltern
