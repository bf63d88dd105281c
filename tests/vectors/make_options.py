#!/usr/bin/env python3
"""Writes what stock Salt knows about master options, for three versions.

    tests/vectors/make_options.py PYTHON_3006 PYTHON_3007 PYTHON_3008

Each argument is the interpreter of an environment in which that line of Salt is installed.  The
result is `tests/vectors/options.json`, which anyone can compare with a newer Salt.  A test holds
the rows of `src/config/src/options/stock.rs` against it.

A default that depends on the machine is written as it is for root on an ordinary Linux host.
"""

import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

# Options that stock reads with `opts.get(...)` but declares nowhere.  Found by searching the
# source, the manual and the shipped configuration for names of options that are in neither
# VALID_OPTS nor the defaults, and leaving out arguments of the command line, keys of nested
# mappings and options of modules.
UNDECLARED = {
    "api_logfile": ["str"],
    "api_pidfile": ["str"],
    "append_domain": ["str"],
    "auth.enable_expanded_auth_matching": ["bool"],
    "auth.pam.python": ["str"],
    "auth.pam.service": ["str"],
    "autoreject_file": ["str"],
    "autosign_file": ["str"],
    "autosign_grains_dir": ["str"],
    "batch_manager_loop_interval": ["int"],
    "batch_safe_limit": ["int"],
    "batch_safe_size": ["int"],
    "ca_bundle": ["str"],
    "cluster_election_max": ["int"],
    "cluster_election_min": ["int"],
    "cluster_join_timeout": ["float"],
    "cluster_port": ["int"],
    "color": ["bool"],
    "color_theme": ["str"],
    "eauth_redis_host": ["str"],
    "eauth_redis_port": ["int"],
    "environment": ["str"],
    "exclude_ext_pillar": ["list"],
    "ext_pillar_first": ["bool"],
    "ext_processes": ["list"],
    "fileserver_events": ["bool"],
    "fileserver_ftp_timeout": ["int"],
    "fileserver_list_cache_time": ["int"],
    "force_color": ["bool"],
    "git_pillar_provider": ["str"],
    "gitfs_provider": ["str"],
    "gpg_keydir": ["str"],
    "ignore_host_keys": ["bool"],
    "include": ["str", "list"],
    "known_hosts_file": ["str"],
    "lazy_loader_strict_matching": ["bool"],
    "log_dir": ["str"],
    "master_id": ["str"],
    "mine_get": ["dict"],
    "mmap_cache_key_size": ["int"],
    "mmap_cache_max_segment_bytes": ["int"],
    "mmap_cache_size": ["int"],
    "mmap_cache_slot_size": ["int"],
    "mmap_key_id_size": ["int"],
    "mmap_key_max_segment_bytes": ["int"],
    "mmap_key_size": ["int"],
    "mmap_key_slot_size": ["int"],
    "nested_indent": ["int"],
    "netapi_disable_clients": ["list"],
    "no_color": ["bool"],
    "no_host_keys": ["bool"],
    "output": ["str"],
    "output_file": ["str"],
    "output_indent": ["int", "str"],
    "peer_run": ["dict"],
    "pepa_delimiter": ["str"],
    "pepa_grains": ["dict"],
    "pepa_pillar": ["dict"],
    "pepa_roots": ["dict"],
    "pepa_validate": ["bool"],
    "pillar_gitfs_ssl_verify": ["bool"],
    "pillar_raise_on_missing": ["bool"],
    "presence_events": ["bool"],
    "preserve_minions": ["bool"],
    "reclass_source_path": ["str"],
    "resource_index_primary_capacity": ["int"],
    "resource_index_primary_slot_size": ["int"],
    "resource_registry_compact_load_factor": ["float"],
    "resource_registry_compact_min_interval": ["float"],
    "resource_registry_compact_tombstone_ratio": ["float"],
    "rest_cherrypy": ["dict"],
    "rest_tornado": ["dict"],
    "rest_wsgi": ["dict"],
    "roster": ["str"],
    "roster_defaults": ["dict"],
    "roster_dir": ["str"],
    "roster_domain": ["str"],
    "roster_file": ["str"],
    "roster_order": ["list"],
    "rosters": ["list"],
    "run_schedule_jobs_in_background": ["bool"],
    "runner_queue": ["dict"],
    "salt_ssh_recursion_depth": ["int"],
    "sharedsecret": ["str"],
    "skip_grains": ["bool"],
    "ssh_ext_alternatives": ["dict"],
    "ssh_known_hosts_file": ["str"],
    "ssh_max_procs": ["int"],
    "ssh_minion_opts": ["dict"],
    "ssh_options": ["list"],
    "ssh_priv": ["str"],
    "ssh_update_roster": ["bool"],
    "ssh_wipe": ["bool"],
    "state_output_exclude": ["list"],
    "state_output_terse": ["list"],
    "state_tabular": ["bool", "str"],
    "stateconf_end_marker": ["str"],
    "stateconf_goal_state": ["bool"],
    "stateconf_start_state": ["str"],
    "stateconf_state_func": ["str"],
    "strip_colors": ["bool"],
    "syndic_dir": ["str"],
    "syndic_master_port": ["int"],
    "syndic_mode": ["str"],
    "syndic_user": ["str"],
    "tgt_type": ["str"],
    "thin_dir": ["str"],
    "thorium_recompile": ["int"],
    "token_dir": ["str"],
    "token_file": ["str"],
    "transport_opts": ["dict"],
    "use_yamlloader_old": ["bool"],
    "userdata_template": ["str"],
    "verify_ssl": ["bool"],
    "virtual_timer": ["float"],
    "win_gitrepos": ["list"],
    "win_repo": ["str"],
    "win_repo_mastercachefile": ["str"],
    "winrepo_mastercachefile": ["str"],
    "winrepo_provider": ["str"],
    "yaml_utf8": ["bool"],
    "zmq_heartbeat_ivl": ["int"],
    "zmq_heartbeat_timeout": ["int"],
}

# Types that stock takes where its schema says otherwise.
TYPES = {"ipc_write_buffer": ["int", "str"]}

# Facts of this machine, and what is written instead.
MACHINE = {"ipc_write_buffer": 0, "user": "root", "ssh_config_file": "/root/.ssh/config"}


def type_names(kind):
    if kind is None:
        return ["null"]
    if isinstance(kind, (tuple, list)):
        return [name for part in kind for name in type_names(part)]
    name = getattr(kind, "__name__", str(kind))
    return [{"NoneType": "null", "tuple": "list"}.get(name, name)]


def thaw(value):
    if hasattr(value, "items"):
        return {key: thaw(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple, set)) or type(value).__name__ == "ImmutableList":
        return [thaw(inner) for inner in value]
    return value


def dump():
    import salt.config as config
    import salt.version

    master, minion = config.DEFAULT_MASTER_OPTS, config.DEFAULT_MINION_OPTS
    names = set(config.VALID_OPTS) | set(master) | set(minion)
    options = {}
    for name in sorted(names):
        entry = {"types": [], "master": name in master, "minion": name in minion}
        if name in config.VALID_OPTS:
            entry["types"] = TYPES.get(name) or type_names(config.VALID_OPTS[name])
        if name in master:
            entry["default"] = MACHINE.get(name, thaw(master[name]))
        options[name] = entry
    for name, types in UNDECLARED.items():
        if name not in options:
            options[name] = {"types": types, "master": False, "minion": False, "undeclared": True}
    json.dump({"version": salt.version.__version__, "options": options}, sys.stdout)


def main(pythons):
    stocks = []
    for python in pythons:
        text = subprocess.run([python, __file__, "--dump"], check=True, stdout=subprocess.PIPE,
                              cwd="/", env={"PATH": os.environ["PATH"], "HOME": "/root"}).stdout
        stocks.append(json.loads(text))
    merged = {stock["version"]: stock["options"] for stock in stocks}
    target = ROOT / "tests/vectors/options.json"
    target.write_text(json.dumps(merged, indent=0, sort_keys=True) + "\n")


if __name__ == "__main__":
    if sys.argv[1:] == ["--dump"]:
        dump()
    elif len(sys.argv) == 4:
        main(sys.argv[1:])
    else:
        sys.exit(__doc__)
