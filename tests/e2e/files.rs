//! Files that stock minions fetch from our file server: states that use files, templates, includes
//! and `file.recurse`, single files, whole directories; and files that they push.
//!
//! The bytes and the kinds of files are compared with stock in `saltern-content`; here the real
//! minion is the judge.

use std::fs;

use anyhow::{Context, Result, ensure};
use saltern_tests::site::MinionKind;
use saltern_tests::{Release, Server, Site, TestResult};

#[test]
fn stock_minions_of_every_release_apply_states_and_fetch_files() -> TestResult {
    Site::run(
        Server::Saltern(Release::V3008),
        |config| {
            let root = config.get("root_dir").unwrap_or_default().to_owned();
            config
                .set("file_recv", "true")
                .set("file_roots", format!("{{base: [{root}/srv]}}"));
        },
        |site| {
            write_tree(site)?;
            site.bring_up(&[
                ("m6", MinionKind::Stock(Release::V3006)),
                ("m7", MinionKind::Stock(Release::V3007)),
                ("m8", MinionKind::Stock(Release::V3008)),
            ])?;
            site.step("state.apply of a tree with templates, includes and file.recurse");
            site.salt(&["-t", "60", "*", "state.apply"])?
                .expect_code(0)?;
            for id in ["m6", "m7", "m8"] {
                let hello = fs::read_to_string(site.path(format!("out/{id}/hello.txt")))?;
                ensure!(hello == format!("hello {id}\n"), "{id} wrote {hello:?}");
                let copied = fs::read_dir(site.path(format!("out/{id}/sub")))?.count();
                ensure!(copied == 50, "{id} has {copied} of 50 files");
            }
            site.step("a large file, to the byte");
            let copy = site.path("out/m8/large.bin");
            let shown = copy.to_str().context("a path that is text")?;
            site.salt(&["-t", "60", "m8", "cp.get_file", "salt://large.bin", shown])?
                .expect_code(0)?;
            let (sent, came) = (fs::read(site.path("srv/large.bin"))?, fs::read(&copy)?);
            ensure!(sent == came, "the copy differs from the file");
            site.step("a directory of a thousand files");
            for id in ["m6", "m8"] {
                let target = site.path(format!("out/{id}/dir"));
                fs::create_dir_all(&target)?;
                let shown = target.to_str().context("a path that is text")?;
                site.salt(&["-t", "120", id, "cp.get_dir", "salt://many", shown])?
                    .expect_code(0)?;
                for number in 0..MANY {
                    let name = many(number);
                    let copy = fs::read_to_string(target.join("many").join(&name))?;
                    ensure!(copy == name, "{id} wrote {copy:?} as {name}");
                }
            }
            site.step("a file that a minion pushes");
            let source = site.path("out/m7/hello.txt");
            let source = source.to_str().context("a path that is text")?;
            site.salt(&["-t", "60", "m7", "cp.push", source])?
                .expect_stdout("m7:\n    True")?;
            Ok(())
        },
    )
}

/// The files of the large directory.
const MANY: usize = 1000;

fn many(number: usize) -> String {
    format!("d{}/f{number}", number % 10)
}

fn write_tree(site: &Site) -> Result<()> {
    let root = site.path("srv");
    for number in 0..MANY {
        let file = root.join("many").join(many(number));
        fs::create_dir_all(file.parent().context("a file has a directory")?)?;
        fs::write(file, many(number))?;
    }
    let out = site.path("out");
    let out = out.display();
    fs::create_dir_all(root.join("sub"))?;
    for number in 0..50 {
        fs::write(root.join(format!("sub/f{number}")), number.to_string())?;
    }
    let large: Vec<u8> = (0..3_000_000_u32)
        .map(|n| (n * 7 + n / 256) as u8)
        .collect();
    fs::write(root.join("large.bin"), large)?;
    fs::write(root.join("hello.txt"), "hello {{ grains['id'] }}\n")?;
    fs::write(root.join("top.sls"), "base:\n  '*':\n    - one\n")?;
    fs::write(
        root.join("one.sls"),
        format!(
            "include:\n  - two\n\
             {out}/{{{{ grains['id'] }}}}/hello.txt:\n  file.managed:\n    \
             - source: salt://hello.txt\n    - template: jinja\n    - makedirs: True\n    \
             - require:\n      - file: copied\n"
        ),
    )?;
    fs::write(
        root.join("two.sls"),
        format!(
            "copied:\n  file.recurse:\n    - name: {out}/{{{{ grains['id'] }}}}/sub\n    \
             - source: salt://sub\n"
        ),
    )?;
    Ok(())
}
