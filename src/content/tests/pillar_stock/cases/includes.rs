//! Includes of SLS files.

use super::{Case, case};

pub(super) fn cases() -> Vec<Case> {
    let tree = |name, text| {
        case(name)
            .all(text)
            .file(
                "base/one.sls",
                "one: 1\nshared: {from: one, one: 1}\nlist: [1]\n",
            )
            .file(
                "base/two.sls",
                "two: 2\nshared: {from: two, two: 2}\nlist: [2]\n",
            )
            .file("base/x.sls", "x: top\n")
            .file("base/dir/init.sls", "include: [.x, .sub.y]\ndir: init\n")
            .file("base/dir/x.sls", "x: dir\n")
            .file("base/dir/z.sls", "include: [.x]\nz: dir\n")
            .file("base/dir/w.sls", "include: [.only]\nw: dir\n")
            .file("base/dir/only.sls", "only: dir\n")
            .file("base/dir/up.sls", "include: [..one, '..x']\nup: dir\n")
            .file("base/dir/sub/y.sls", "y: sub\n")
            .file(
                "base/vars.sls",
                "vars: {{ value | default('none') }}\nother: {{ other | default('none') }}\n",
            )
            .file(
                "base/nested.sls",
                "include: [vars]\nnested: {{ value | default('none') }}\n",
            )
            .file("base/broken.sls", "broken: {{ nothing.here }}\n")
            .file("base/brokeninclude.sls", "include: [broken]\nbi: 1\n")
            .file("base/empty.sls", "")
            .file("base/list.sls", "[1, 2]\n")
            .file("base/loop.sls", "include: [pool]\nloop: 1\n")
            .file("base/pool.sls", "include: [loop]\npool: 1\n")
            .file("base/self.sls", "include: [self]\nself: 1\n")
    };
    let mut all = vec![
        tree(
            "include",
            "include: [one, two]\nall: 1\nshared: {from: all}\n",
        ),
        tree("include with own lists", "include: [one, two]\nlist: [3]\n"),
        tree(
            "include override",
            "include: [one, two]\nshared: {from: all}\n",
        )
        .config("pillar_includes_override_sls: true\n"),
        tree(
            "include merging lists",
            "include: [one, two]\nlist: [3, 1]\n",
        )
        .config("pillar_merge_lists: true\n"),
        tree(
            "include override, twice",
            "include: [nested, nested, vars]\nvars: all\n",
        )
        .config("pillar_includes_override_sls: true\n"),
        tree(
            "include strategy list",
            "include: [one, two]\nshared: {from: all}\n",
        )
        .config("pillar_source_merging_strategy: list\n"),
        tree(
            "include strategy aggregate",
            "include: [one, two]\nshared: {from: all}\nlist: [3]\n",
        )
        .config("pillar_source_merging_strategy: aggregate\n"),
        tree(
            "include strategy overwrite",
            "include: [one, two]\nshared: {from: all}\nlist: [3]\n",
        )
        .config("pillar_source_merging_strategy: overwrite\n"),
        tree("relative in init", "include: [dir]\n"),
        tree("relative in a file", "include: [dir.z]\n"),
        tree("relative, only in the directory", "include: [dir.w]\n"),
        tree("relative upwards", "include: [dir.up]\n"),
        tree("relative at the top", "include: [.one]\n"),
        tree("relative that is not there", "include: [.nope, dir.nope]\n"),
        tree("with a slash", "include: [dir/z]\n"),
        tree("wildcards", "include: ['dir.*', 't*']\n"),
        tree("relative wildcards", "include: ['.o*', 'dir.sub.?']\n"),
        tree(
            "a key",
            "include: [{one: {key: a}}, {two: {key: 'a:b:c'}}]\n",
        ),
        tree(
            "a key for the same file",
            "include: [{one: {key: a}}, {one: {key: b}}, one]\n",
        ),
        tree("an empty key", "include: [{one: {key: ''}}]\n"),
        tree(
            "defaults",
            "include: [{vars: {defaults: {value: 7, other: [1]}}}]\n",
        ),
        tree(
            "defaults pass on",
            "include: [{nested: {defaults: {value: deep}}}]\n",
        ),
        tree(
            "defaults hold for what follows",
            "include: [{one: {defaults: {value: 8}}}, vars]\n",
        ),
        tree(
            "defaults and key",
            "include: [{vars: {defaults: {value: 9}, key: k}}]\n",
        ),
        tree(
            "defaults with env",
            "include: [{vars: {defaults: {env: x, value: y}}}]\n",
        ),
        tree(
            "defaults that are nothing",
            "include: [{vars: {defaults: }}]\n",
        ),
        tree(
            "defaults that are no mapping",
            "include: [{vars: {defaults: [1]}}, one]\n",
        ),
        tree(
            "defaults with a name of stock",
            "include: [{vars: {defaults: {grains: 1}}}, one]\n",
        ),
        tree(
            "defaults with a number as name",
            "include: [{vars: {defaults: {1: 1}}}, one]\n",
        ),
        tree("an include is not there", "include: [nope, one]\nall: 1\n"),
        tree(
            "an include is broken",
            "include: [broken, one, two]\nall: 1\n",
        ),
        tree(
            "errors are repeated",
            "include: [broken, one, one, two]\nall: 1\n",
        ),
        tree(
            "errors of included files",
            "include: [brokeninclude, one]\nall: 1\n",
        ),
        tree(
            "errors with their texts",
            "include: [broken, one]\nall: 1\n",
        )
        .config("pillar_safe_render_error: false\n"),
        tree("an include is empty", "include: [empty, one]\nall: 1\n"),
        tree("an include is a list", "include: [list, one]\nall: 1\n").raises(),
        tree("an include of the same", "include: [self]\nall: 1\n"),
        tree("includes in a circle", "include: [loop]\nall: 1\n"),
        tree("include of itself", "include: [all, one]\nall: 1\n"),
        tree("include that is a text", "include: one\nall: 1\n"),
        tree("include that is empty", "include: []\nall: 1\n"),
        tree("include of a number", "include: [1]\nall: 1\n").raises(),
        tree(
            "include with options that are nothing",
            "include: [{one: }]\nall: 1\n",
        )
        .raises(),
        tree(
            "include from jinja",
            "include:\n{% for role in grains.roles %}\n  - roles.{{ role }}\n{% endfor %}\n",
        )
        .file("base/roles/web.sls", "web: 1\n")
        .file("base/roles/app.sls", "app: 1\n"),
    ];
    all.push(
        case("include in another environment")
            .top("dev: {'*': [a]}\n")
            .file("dev/a.sls", "include: [b, c]\na: 1\n")
            .file("dev/b.sls", "b: dev\n")
            .file("base/c.sls", "c: base\n"),
    );
    all.push(
        case("files that were included before")
            .top("base: {'*': [a, b]}\n")
            .file("base/a.sls", "include: [b]\na: 1\n")
            .file("base/b.sls", "include: [c]\nb: 1\nc: b\n")
            .file("base/c.sls", "c: c\n"),
    );
    all
}
