//! Each function on a small tree of files; `tests/e2e/wheels.rs` compares with stock.

use std::os::unix::fs::symlink;

use saltern_model::Compat;
use saltern_wire::msgpack::Value;

use crate::testing::{TestSite, list};

/// A site with the same files below both kinds of roots.
fn site() -> TestSite {
    let site = TestSite::new(Compat::V3008, "");
    for root in ["salt", "pillar"] {
        site.write(&format!("{root}/top.sls"), "größe: 1\n");
        site.write(&format!("{root}/sub/deep.sls"), "deep\n");
        site.write(&format!("{root}/bytes"), "a\0b");
        symlink(site.path("secret"), site.path(root).join("out")).unwrap();
        symlink("top.sls", site.path(root).join("inside")).unwrap();
        symlink("sub", site.path(root).join("link")).unwrap();
    }
    site.write("secret", "secret\n");
    site
}

/// Both modules with the directory that is their root.
const MODULES: [(&str, &str); 2] = [("file_roots", "salt"), ("pillar_roots", "pillar")];

#[test]
fn files_are_found_and_read_below_the_root_alone() {
    let site = site();
    for (module, root) in MODULES {
        let root = site.path(root).display().to_string();
        let ask = |fun: &str, path: &str| {
            site.wheel_value(&format!("{module}.{fun}"), &[("path", path.into())])
        };
        let one = |path: &str, value: &str| {
            Value::Array(vec![Value::map([(format!("{root}/{path}"), value)])])
        };
        assert_eq!(ask("find", "top.sls"), one("top.sls", "txt"));
        assert_eq!(ask("find", "bytes"), one("bytes", "bin"));
        assert_eq!(ask("read", "top.sls"), one("top.sls", "größe: 1\n"));
        assert_eq!(ask("read", "sub/deep.sls"), one("sub/deep.sls", "deep\n"));
        assert_eq!(ask("read", "inside"), one("inside", "größe: 1\n"));
        assert_eq!(ask("read", "bytes"), list(&[]));
        for path in [
            "none",
            "sub",
            "out",
            "../secret",
            "sub/../../secret",
            "/etc/hostname",
            "a\0b",
            "",
            ".",
        ] {
            assert_eq!(ask("find", path), list(&[]), "{module} {path:?}");
            assert_eq!(ask("read", path), list(&[]), "{module} {path:?}");
        }
        let absolute = site.path("secret").display().to_string();
        assert_eq!(ask("read", &absolute), list(&[]));
    }
}

#[test]
fn listings_show_what_is_there() {
    let site = site();
    for (module, root) in MODULES {
        let root = site.path(root).display().to_string();
        let listed = site.wheel_value(&format!("{module}.list_env"), &[]);
        let tree = listed.get(&root).unwrap();
        for name in ["top.sls", "bytes", "out", "inside"] {
            assert_eq!(tree.get(name), Some(&"f".into()), "{name}");
        }
        let deep = Value::map([("deep.sls", "f")]);
        assert_eq!(tree.get("sub"), Some(&deep));
        // A link to a directory is not gone into.
        assert_eq!(tree.get("link"), Some(&Value::Map(Vec::new())));
        assert_eq!(tree.as_map().unwrap().len(), 6);
        let all = site.wheel_value(&format!("{module}.list_roots"), &[]);
        assert_eq!(all, Value::map([("base", Value::Array(vec![listed]))]));
        let none = [("saltenv", "none".into())];
        let none = site.wheel_value(&format!("{module}.list_env"), &none);
        assert_eq!(none, Value::Map(Vec::new()));
    }
}

#[test]
fn files_are_written_below_the_root_alone() {
    let site = site();
    for (module, directory) in MODULES {
        let root = site.path(directory).display().to_string();
        let write = |path: &str, more: &[(&str, Value)]| {
            let mut named = vec![("data", "new".into()), ("path", path.into())];
            named.extend(more.iter().cloned());
            let (ran, _) = site.wheel(&format!("{module}.write"), &named);
            ran.value.as_str().unwrap().to_owned()
        };
        let said = write("new/file.sls", &[]);
        assert_eq!(said, format!("Wrote data to file {root}/new/file.sls"));
        let written = site.read(&format!("{directory}/new/file.sls"));
        assert_eq!(written.as_deref(), Some("new"));
        // A longer file is truncated.
        write("top.sls", &[]);
        let written = site.read(&format!("{directory}/top.sls"));
        assert_eq!(written.as_deref(), Some("new"));
        let invalid = match module {
            "file_roots" => "Invalid path: ../secret",
            _ => "Invalid path",
        };
        assert_eq!(write("../secret", &[]), invalid);
        for (path, more, said) in [
            (
                "/etc/x",
                vec![],
                "The path passed in /etc/x is not relative to the environment base",
            ),
            (
                "x",
                vec![("saltenv", "none".into())],
                "Named environment none is not present",
            ),
            (
                "x",
                vec![("index", 1.into())],
                "Specified index 1 in environment base is not present",
            ),
        ] {
            assert_eq!(write(path, &more), said);
        }
        // No link is written through, whether to a file or to a directory.
        assert!(write("out", &[]).starts_with("Exception occurred"));
        assert!(write("link/x", &[]).starts_with("Exception occurred"));
        assert_eq!(site.read("secret").as_deref(), Some("secret\n"));
    }
}
