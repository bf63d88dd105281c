# Ids, functions and jobs, which the master knows; nothing is published for them. The rest is completed by
# the function above.
_saltern() {
    local -a known
    known=("${(@f)$("${(Q)words[1]}" complete line -- "${(@Q)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ -n "${known[1]}" ]]; then
        compadd -a known
    else
        _saltern_defined "$@"
    fi
}

