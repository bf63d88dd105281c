
# Ids, functions and jobs, which the master knows; nothing is published for them. The rest is completed by
# the function above.
_saltern_known() {
    local word="" kind="" config=() place=-1 index cur=${COMP_WORDS[COMP_CWORD]}
    for ((index = 1; index < COMP_CWORD; index++)); do
        word=${COMP_WORDS[index]}
        case $word in
            -c | --config-dir)
                config=(-c "${COMP_WORDS[index + 1]}")
                ((index++))
                ;;
            -t | --timeout | -b | --batch | --batch-size | --out | --subset | --where | -w | --columns | --sort) ((index++)) ;;
            -*) ;;
            *) ((place++)) ;;
        esac
    done
    case ${COMP_WORDS[1]}:$place in
        cmd:0 | cp:0 | minions:0 | key:1) kind=minions ;;
        cmd:1) kind=functions ;;
        run:0) kind=runners ;;
        follow:0 | explain:0) kind=jobs ;;
    esac
    if [[ -n $kind && $cur != -* ]]; then
        mapfile -t COMPREPLY < <("${COMP_WORDS[0]}" complete "${config[@]}" "$kind" -- "$cur" 2>/dev/null)
        [[ ${#COMPREPLY[@]} -eq 0 ]] || return 0
    fi
    _saltern "$@"
}
complete -F _saltern_known -o bashdefault -o default saltern
