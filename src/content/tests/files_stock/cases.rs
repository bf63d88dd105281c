//! The trees and configurations over which both file servers are asked.

/// Entry of a file tree.
pub(crate) enum What {
    File(&'static str),
    Directory,
    Link(&'static str),
    Pipe,
}

use What::{Directory, File, Link, Pipe};

/// One configuration and what lies under its directory, called `{top}` in both.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) config: &'static str,
    pub(crate) tree: &'static [(&'static str, What)],
}

const PLAIN: &[(&str, What)] = &[
    ("salt/top.sls", File("base:\n  '*':\n    - one\n")),
    ("salt/one.sls", File("one: test.nop\n")),
    ("salt/empty.txt", File("")),
    ("salt/web/init.sls", File("web")),
    ("salt/web/files/nginx.conf", File("worker_processes 4;\n")),
    ("salt/website/index.html", File("<html/>")),
    ("salt/deep/a/b/c/d", File("deep")),
    ("salt/nothing", Directory),
    ("salt/nested/nothing", Directory),
    ("salt/ümläut/日本語.txt", File("ünïcödé")),
    ("salt/e\u{301}/decomposed", File("d")),
    ("salt/\u{e9}/composed", File("c")),
    ("salt/with space/and\nnewline", File("n")),
    ("salt/.hidden/.file", File("h")),
    ("salt/..two/dots", File("t")),
];

const LINKS: &[(&str, What)] = &[
    ("outside/secret", File("secret")),
    ("outside/full/file", File("f")),
    ("outside/void", Directory),
    ("sibling/file", File("sibling")),
    ("salt/real", File("real")),
    ("salt/dir/file", File("in dir")),
    ("salt/dir/sub/file", File("in sub")),
    ("salt/dir/hollow", Directory),
    ("salt/hollow", Directory),
    ("salt/to_file", Link("real")),
    ("salt/to_dir", Link("dir")),
    ("salt/to_sub", Link("dir/sub")),
    ("salt/to_hollow", Link("hollow")),
    ("salt/to_link", Link("to_file")),
    ("salt/dangling", Link("nowhere")),
    ("salt/dir/dangling_up", Link("../nowhere")),
    ("salt/dir/up", Link("../real")),
    ("salt/dir/sub/up_up", Link("../../real")),
    ("salt/dir/sub/up_twice", Link("../../../sibling/file")),
    ("salt/out_file", Link("../outside/secret")),
    ("salt/out_full", Link("../outside/full")),
    ("salt/out_absolute", Link("{top}/outside/secret")),
    ("salt/in_absolute", Link("{top}/salt/real")),
    ("salt/in_absolute_dir", Link("{top}/salt/dir")),
    ("salt/round", Link("../salt/real")),
    ("salt/own_loop", Link("own_loop")),
    ("salt/ping", Link("pong")),
    ("salt/pong", Link("ping")),
];

const ENVIRONMENTS: &[(&str, What)] = &[
    ("base1/shared", File("base1")),
    ("base1/only1", File("1")),
    ("base2/shared", File("base2")),
    ("base2/only2", File("2")),
    ("base2/dir/x", File("x")),
    ("base1/dir/y", File("y")),
    ("dev/shared", File("dev")),
    ("dev/devonly", File("devonly")),
    ("any/qa/shared", File("qa")),
    ("any/qa/sub/deep", File("deep")),
    ("any/feature/x/shared", File("feature")),
    ("any/__env__/shared", File("literal")),
];

const PUSHED: &[(&str, What)] = &[
    ("salt/own", File("own")),
    ("salt/minions/web1/etc/clash", File("roots")),
    (
        "cache/minions/web1/files/etc/hosts",
        File("127.0.0.1 localhost\n"),
    ),
    ("cache/minions/web1/files/etc/top.sls", File("base: {}\n")),
    ("cache/minions/web1/files/etc/clash", File("pushed")),
    ("cache/minions/web1/files/var/log/syslog", File("log")),
    ("cache/minions/web2/files/etc/hosts", File("two")),
    ("cache/minions/web2/data.p", File("data")),
    ("cache/minions/db1/files/dump.sql", File("select")),
    ("cache/minions/secret1/files/key", File("key")),
    ("cache/minions/bare", Directory),
];

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "one root",
        config: "file_roots: {base: ['{top}/salt']}\n",
        tree: PLAIN,
    },
    Case {
        name: "one root that ends in a slash, small chunks",
        config: "file_roots: {base: ['{top}/salt/']}\nfile_buffer_size: 7\nhash_type: md5\n",
        tree: PLAIN,
    },
    Case {
        name: "no cached lists, another digest",
        config: "file_roots: {base: ['{top}/salt']}\nfileserver_list_cache_time: 0\n\
                 hash_type: sha512\n",
        tree: PLAIN,
    },
    Case {
        name: "sha1 and a root that is missing",
        config: "file_roots: {base: ['{top}/none', '{top}/salt']}\nhash_type: SHA1\n",
        tree: PLAIN,
    },
    Case {
        name: "ignored by glob",
        config: "file_roots: {base: ['{top}/salt']}\n\
                 file_ignore_glob: ['*.sls', '*/web/*', 'deep', '[!a-z]*']\n",
        tree: PLAIN,
    },
    Case {
        name: "ignored by one glob",
        config: "file_roots: {base: ['{top}/salt']}\nfile_ignore_glob: '*/nginx.conf'\n",
        tree: PLAIN,
    },
    Case {
        name: "ignored by regex",
        config: "file_roots: {base: ['{top}/salt']}\n\
                 file_ignore_regex: ['/\\.[^/]+$', '^deep/', '(unclosed', '\\.html$']\n",
        tree: PLAIN,
    },
    Case {
        name: "ignored by one regex",
        config: "file_roots: {base: ['{top}/salt']}\nfile_ignore_regex: '(?i)WEB'\n",
        tree: PLAIN,
    },
    Case {
        name: "links",
        config: "file_roots: {base: ['{top}/salt']}\n",
        tree: LINKS,
    },
    Case {
        name: "links that may not lead out",
        config: "file_roots: {base: ['{top}/salt']}\nfileserver_followsymlinks: False\n",
        tree: LINKS,
    },
    Case {
        name: "links that are not listed",
        config: "file_roots: {base: ['{top}/salt']}\nfileserver_ignoresymlinks: True\n",
        tree: LINKS,
    },
    Case {
        name: "links that are neither listed nor may lead out",
        config: "file_roots: {base: ['{top}/salt']}\nfileserver_followsymlinks: False\n\
                 fileserver_ignoresymlinks: True\n",
        tree: LINKS,
    },
    Case {
        name: "a root that is a link",
        config: "file_roots: {base: ['{top}/alias']}\nfileserver_followsymlinks: False\n",
        tree: &[
            ("salt/file", File("f")),
            ("salt/inside", Link("{top}/salt/file")),
            ("salt/outside", Link("../other")),
            ("other", File("o")),
            ("alias", Link("salt")),
        ],
    },
    Case {
        name: "environments",
        config: "file_roots:\n  base: ['{top}/base1', '{top}/base2']\n  dev: ['{top}/dev']\n  \
                 empty:\n  twice: ['{top}/dev', '{top}/dev']\n",
        tree: ENVIRONMENTS,
    },
    Case {
        name: "any environment",
        config: "file_roots:\n  base: ['{top}/base1']\n  __env__: ['{top}/any/__env__', \
                 '{top}/base2']\n",
        tree: ENVIRONMENTS,
    },
    Case {
        name: "roots with wildcards",
        config: "file_roots: {base: ['{top}/b*2', '{top}/bas?[!2-9]', '{top}/none*']}\n",
        tree: ENVIRONMENTS,
    },
    Case {
        name: "names that are special to someone",
        config: "file_roots: {base: ['{top}/salt']}\n",
        tree: &[
            ("salt/what?now", File("q")),
            ("salt/|pipe", File("p")),
            ("salt/a:b", File("c")),
            ("salt/salt:/x", File("s")),
            ("salt/back\\slash", File("b")),
            ("salt/tab\there", File("t")),
            ("salt/*star*", File("w")),
            ("salt/[set]", File("s")),
            ("salt/-dash", File("d")),
            ("salt/%2e%2e", File("e")),
        ],
    },
    Case {
        name: "what is no file",
        config: "file_roots: {base: ['{top}/salt']}\n",
        tree: &[
            ("salt/pipe", Pipe),
            ("salt/dir/pipe", Pipe),
            ("salt/link", Link("pipe")),
        ],
    },
    Case {
        name: "minionfs",
        config: "fileserver_backend: [minion]\nfile_recv: True\nfile_roots: {base: \
                 ['{top}/salt']}\nminionfs_blacklist: ['secret*']\n",
        tree: PUSHED,
    },
    Case {
        name: "minionfs behind roots, mounted and listed white",
        config: "fileserver_backend: [roots, minionfs]\nfile_recv: True\nfile_roots: {base: \
                 ['{top}/salt']}\nminionfs_mountpoint: salt://minions\n\
                 minionfs_whitelist: ['web\\d+', db1]\nfile_ignore_glob: '*.sql'\n",
        tree: PUSHED,
    },
    Case {
        name: "minionfs before roots in an environment of its own",
        config: "fileserver_backend: [minionfs, roots]\nfile_recv: True\nfile_roots: {base: \
                 ['{top}/salt']}\nminionfs_env: pushed\nminionfs_whitelist: 'web*'\n\
                 minionfs_blacklist: [web2]\n",
        tree: PUSHED,
    },
    Case {
        name: "minionfs without file_recv",
        config: "fileserver_backend: [minionfs, roots]\nfile_roots: {base: ['{top}/salt']}\n",
        tree: PUSHED,
    },
];
