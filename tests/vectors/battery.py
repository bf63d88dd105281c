"""Every filter, test and global function of templates on odd values, and every function of `salt` that
is built into Saltern (their names stand in `ROOT/functions`): `make_functions.py ROOT battery` renders
them with stock."""

VALUES = [
    "none", "0", "1", "-1", "1.5", "''", "'a'", "' '", "[]", "[1, 'a']", "{}", "{'a': 1}", "true", "false", "nothere",
    "{'a': [1, {'b': none}]}", "(1, 'a')", "'ab ' * 50", "'grün'.encode()", "1e16", "('nan' | float)", "'10.0.0.1/28'",
]
# Arguments beside the value, for what needs some or does something else with them.
ARGUMENTS = {
    "append_dict_key_value": ["'k:l', 1"], "attr": ["'a'"], "batch": ["2"], "check_whitelist_blacklist": ["['a*'], []", "none, ['a']"],
    "combinations": ["2"], "combinations_with_replacement": ["2"], "compare_dicts": ["{}", "{'a': 2}"], "compare_lists": ["[1]"],
    "compress": ["[1, 0]"], "d": ["'d'", "'d', true"], "default": ["'d'", "'d', true"], "dictsort": ["by='value'"],
    "difference": ["[1]"], "extend_dict_key_value": ["'k', [1]"], "filter_by_networks": ["['10.0.0.0/8']"], "format": ["1"],
    "groupby": ["'a'"], "hmac": ["'k', 'x'"], "hmac_compute": ["'k'"], "indent": ["2, true"], "intersect": ["[1]"], "int": ["5, 16"],
    "join": ["', '", "',', 'a'"], "json": ["indent=2"], "map": ["'string'", "attribute='a'", "'nope'"], "max": ["1"], "min": ["1"], "method_call": ["'upper'"],
    "path_join": ["'b'"], "permutations": ["1"], "product": ["[1]"], "regex_match": ["'a'"], "regex_replace": ["'a', 'b'"],
    "regex_search": ["'(a)'"], "reject": ["'string'"], "rejectattr": ["'a'"], "replace": ["'a', 'b'"], "round": ["1", "0, 'floor'"],
    "select": ["'string'"], "selectattr": ["'a'"], "set_dict_key_value": ["'k:l', 1"], "slice": ["2"], "sort": ["true", "attribute='a'"],
    "strftime": ["'%Y'"], "date_format": ["'%Y'"], "substring_in_list": ["['a']", "'a'"], "sum": ["'a'", "start=1"], "symmetric_difference": ["[1]"], "to_camelcase": ["true"],
    "traverse": ["'a'", "'a:1', 'd'"], "truncate": ["3", "3, true"], "union": ["[1]"], "update_dict_key_value": ["'k', {'l': 1}"],
    "wordwrap": ["2"], "yaml": ["false"], "zip": ["[1]"], "zip_longest": ["[1]"], "random_sample": ["1"], "random_shuffle": ["'s'"],
    "regex_escape": [""], "ifelse": ["1, 2", "'a', 2"], "range": ["2"], "dict": ["a=1"], "xml": [""],
    "divisibleby": ["2"], "eq": ["1"], "equalto": ["1"], "==": ["1"], "!=": ["1"], "ne": ["1"], "<": ["1"], "<=": ["1"], ">": ["1"], ">=": ["1"],
    "ge": ["1"], "gt": ["1"], "greaterthan": ["1"], "le": ["1"], "lt": ["1"], "lessthan": ["1"], "in": ["[1, 'a']", "'abc'"], "sameas": ["1"], "match": ["'a'"],
}
# What reaches the network, or is a language of its own.
# Without arguments it takes as long as there are orders.
NEVER_ALONE = {"permutations"}
LEFT_OUT = {"dns_check", "http_query", "json_query"}
# What prints its context, or text by chance.
GLOBALS_LEFT_OUT = {"show_full_context", "lipsum"}
# What is not the same twice, and what is only asked whether it answers.
BY_CHANCE = {"gen_mac", "rand_str", "random", "random_hash", "random_sample", "random_str", "uuid", "random_shuffle"}


# Modules whose functions look into data. Others start programs, or look at files and interfaces.
MODULES = {"config", "defaults", "environ", "grains", "match", "pillar", "slsutil", "test"}
# What reaches no function here as it is: what is undefined, and what MessagePack has not.
NOT_FOR_FUNCTIONS = {"nothere", "(1, 'a')", "'grün'.encode()"}
# Set in `make_functions.py`, for processes that are forked from it.
render = None


def templates(filters, tests, functions, salts):
    """Templates with the names of what they try."""
    for value in VALUES:
        for name in filters:
            if name in LEFT_OUT:
                continue
            for arguments in dict.fromkeys([*[""][name in NEVER_ALONE :], *ARGUMENTS.get(name, [])]):
                call = f"{name}({arguments})" if arguments else name
                yield {"name": name, "template": "{{ " + f"({value}) | {call}" + " }}"}
        for name in tests:
            if not name[0].isalpha():
                yield {"name": name, "template": "{{ " + f"[{value}] | select('{name}', 1) | list" + " }}"}
                continue
            for arguments in dict.fromkeys(["", *ARGUMENTS.get(name, [])]):
                call = f"{name}({arguments})" if arguments else name
                yield {"name": name, "template": "{{ " + f"({value}) is {call}" + " }}"}
        for name in functions:
            if name in GLOBALS_LEFT_OUT:
                continue
            for arguments in dict.fromkeys(["", *ARGUMENTS.get(name, [])]):
                call = f"{value}, {arguments}" if arguments else value
                yield {"name": name, "template": "{{ " + f"{name}({call})" + " }}"}
        for name in salts:
            if name.split(".")[0] in MODULES and value not in NOT_FOR_FUNCTIONS:
                yield {"name": name, "template": "{{ " + f"salt['{name}']({value})" + " }}"}
