//! `salt-key`, stock's beside ours: the same command lines on the same keys, one after the other.
//! Standard output, exit code and what is left on the disk are equal. What cannot be equal is masked:
//! the directory of the site. Where ours differs on purpose, `src/cli/DIFFERENCES.md` says so.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use openssl::rsa::Rsa;
use saltern_tests::process::{Run, run};
use saltern_tests::site::{Failure, MinionKind, SOON};
use saltern_tests::{Release, Server, Site, TestResult};

#[test]
fn salt_key_of_3006_prints_and_does_what_stock_does() -> TestResult {
    Ok(compare(Release::V3006)?)
}

#[test]
fn salt_key_of_3007_prints_and_does_what_stock_does() -> TestResult {
    Ok(compare(Release::V3007)?)
}

#[test]
fn salt_key_of_3008_prints_and_does_what_stock_does() -> TestResult {
    Ok(compare(Release::V3008)?)
}

/// Keys before the first command, as `state/id`.
const KEYS: &[&str] = &[
    "minions/accepted",
    "minions/Other",
    "minions/web1",
    "minions_pre/pending",
    "minions_pre/second",
    "minions_pre/Web2",
    "minions_rejected/rejected",
    "minions_denied/denied",
    "minions_denied/accepted",
];

/// The command lines, in their order; later ones find what earlier ones left. The first word answers
/// the question, if it is one of `y`, `n`, and `empty`.
const LINES: &[&[&str]] = &[
    &[],
    &["-L"],
    &["--list-all", "--no-color"],
    &["-L", "--force-color"],
    &["-L", "-q"],
    &["-l", "acc"],
    &["-l", "accepted"],
    &["-l", "un"],
    &["-l", "pre"],
    &["-l", "rej"],
    &["-l", "den"],
    &["--list=all"],
    &["-l", "nonsense"],
    &["-L", "--out=nested"],
    &["-L", "--out=json"],
    &["-L", "--out=json", "--out-indent=2"],
    &["-L", "--out=json", "--out-indent=-1"],
    &["-L", "--out=yaml"],
    &["-L", "--out=raw"],
    &["-L", "--out=txt"],
    &["-L", "--out=pprint"],
    &["-L", "--out=quiet"],
    &["-L", "--out=no_such_outputter"],
    &["-L", "--out=highstate"],
    &["-L", "-d", "x"],
    &["-p", "pending"],
    &["-p", "web*,pend*"],
    &["-p", "nobody"],
    &["-P"],
    &["--print-all", "--out=json"],
    &["--print-all", "--out=yaml"],
    &["--print-all", "--out=pprint"],
    &["-f", "accepted"],
    &["-f", "master*"],
    &["-F"],
    &["--finger-all", "--out=json"],
    &["-a", "nobody"],
    &["-a", "nobody", "--include-rejected", "--include-denied"],
    &["-r", "nobody", "--include-all"],
    &["-d", "nobody", "--include-accepted"],
    &["n", "-a", "pending"],
    &["empty", "-d", "pending"],
    &["empty", "-a", "pend*"],
    &["-r", "second,sec*", "-y"],
    &["-a", "rejected"],
    &["-a", "rejected", "--include-rejected", "-y"],
    &[
        "-r",
        "accepted",
        "--include-accepted",
        "-y",
        "--force-color",
    ],
    &["-L"],
    &["-a", "denied", "--include-denied", "-y"],
    &["-A", "-y", "--include-all"],
    &["-R", "-y"],
    &["y", "-d", "[Ww]eb?"],
    &["-L", "--out=json"],
    &["-D", "-y", "extra"],
    &["-a", "--no-such-option"],
    &["--keysize=1000"],
    &["-d", "a*", "-y", "--rotate-aes-key=False"],
    &["--gen-signature"],
    &["--gen-signature", "--pub", "/none"],
    &["--gen-signature", "--priv", "/none"],
    &["-D", "-y", "--out-file=OUTPUT"],
    &["-L"],
];

/// Output of a command, and the files that it left.
#[derive(PartialEq, Eq)]
struct Outcome {
    line: String,
    code: Option<i32>,
    stdout: String,
    left: Vec<String>,
}

fn compare(release: Release) -> Result<()> {
    let mut outcomes = Vec::new();
    for server in [Server::Stock(release), Server::Saltern(release)] {
        let configure = |config: &mut saltern_tests::Config| {
            config.set("id", "host_master");
            config.set("salt_compat", format!("'{}'", release.compat()));
        };
        Site::prepared(server, configure, |site| {
            prepare(site)?;
            let lines = LINES.iter().map(|line| outcome(site, line));
            outcomes.push(lines.collect::<Result<Vec<_>>>()?);
            Ok(())
        })
        .map_err(Failure::into_error)?;
    }
    let [stock, ours] = <[Vec<Outcome>; 2]>::try_from(outcomes)
        .map_err(|_| anyhow::anyhow!("two rounds were made"))?;
    let mut differences = Vec::new();
    for (stock, ours) in stock.iter().zip(&ours) {
        if stock != ours {
            differences.push(format!(
                "{}\nstock:\n{}\nours:\n{}",
                stock.line,
                stock.shown(),
                ours.shown()
            ));
        }
    }
    ensure!(differences.is_empty(), "{}", differences.join("\n\n"));
    Ok(())
}

impl Outcome {
    fn shown(&self) -> String {
        format!(
            "code {:?}, left {:?}\n{}",
            self.code, self.left, self.stdout
        )
    }
}

/// Keys of minions and the master's own: the same for every command.
fn prepare(site: &mut Site) -> Result<()> {
    site.accept_beforehand("web1")?;
    let pki = site.path("pki");
    let key = fs::read(pki.join("minions/web1"))?;
    for name in KEYS {
        let path = pki.join(name);
        fs::create_dir_all(path.parent().context("a key lies in a directory")?)?;
        fs::write(&path, &key)?;
    }
    fs::write(pki.join("minions/.hidden"), &key)?;
    fs::write(pki.join("master.pub"), &key)?;
    fs::write(pki.join("master.pem"), "no key")?;
    symlink(pki.join("minions/web1"), pki.join("minions/link"))?;
    fs::set_permissions(&pki, fs::Permissions::from_mode(0o700))?;
    Ok(())
}

fn outcome(site: &Site, line: &[&str]) -> Result<Outcome> {
    let (answer, words) = match line {
        ["y", words @ ..] => ("y\\n", words),
        ["n", words @ ..] => ("n\\n", words),
        ["empty", words @ ..] => ("\\n", words),
        words => ("", words),
    };
    let output = site.path("output").display().to_string();
    let words: Vec<String> = words
        .iter()
        .map(|word| word.replace("OUTPUT", &output))
        .collect();
    let root = site.path("").display().to_string();
    let root = root.trim_end_matches('/');
    let run = salt_key(site, answer, &words)?;
    let mut left = Vec::new();
    for state in [
        "minions",
        "minions_pre",
        "minions_rejected",
        "minions_denied",
    ] {
        for entry in fs::read_dir(site.path("pki").join(state))? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            left.push(format!("{state}/{name}"));
        }
    }
    left.extend(fs::read_to_string(&output));
    left.push(format!("dropfile: {}", site.path("cache/.dfn").exists()));
    left.sort();
    Ok(Outcome {
        line: words.join(" ").replace(root, "ROOT"),
        code: run.code,
        stdout: run.stdout.replace(root, "ROOT"),
        left,
    })
}

/// Stock's command under a stock site, else ours, with this answer on its standard input.
fn salt_key(site: &Site, answer: &str, words: &[String]) -> Result<Run> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let inner = match site.server() {
        Server::Stock(_) => site.stock_command("salt-key", &words),
        Server::Saltern(_) => site.own_command("salt-key", &words),
    };
    if answer.is_empty() {
        let mut inner = inner;
        return run(&mut inner, SOON * 2);
    }
    let mut command = Command::new("sh");
    // By a link, because a shell cannot give a program another name.
    let program = match site.server() {
        Server::Stock(_) => inner.get_program().to_owned(),
        Server::Saltern(_) => {
            let link = site.path("salt-key");
            if !link.exists() {
                symlink(inner.get_program(), &link)?;
            }
            link.into_os_string()
        }
    };
    let script = format!("printf '{answer}' | \"$0\" \"$@\"");
    command
        .args(["-c", &script])
        .arg(program)
        .args(inner.get_args());
    run(&mut command, SOON * 2)
}

/// Of two keys under one name the right one is chosen by its fingerprint, in every release's form of it.
#[test]
fn key_is_chosen_by_its_fingerprint() -> TestResult {
    for release in [Release::V3006, Release::V3008] {
        Site::prepared(
            Server::Saltern(release),
            |_| {},
            |site| {
                for id in ["m1", "m2"] {
                    site.accept_beforehand(id)?;
                    fs::create_dir_all(site.path("pki/minions_pre"))?;
                    let pending = site.path(format!("pki/minions_pre/{id}"));
                    fs::rename(site.path(format!("pki/minions/{id}")), pending)?;
                }
                let shown = own(site, &["-f", "m2"])?.stdout;
                let finger = shown
                    .trim()
                    .rsplit(' ')
                    .next()
                    .unwrap_or_default()
                    .to_uppercase();
                let accepted = own(site, &["-a", &finger, "--by-fingerprint", "-y"])?;
                accepted.expect_text("Key for minion m2 accepted.")?;
                ensure!(!accepted.stdout.contains("m1"), "{accepted}");
                own(site, &["-d", "00:11", "--by-fingerprint", "-y"])?
                    .expect_text("does not match any")?;
                Ok(())
            },
        )?;
    }
    Ok(())
}

/// Of the same keys ours makes stock's signature: with SHA-1 in 3006, with the algorithm of publications in
/// 3008.
#[test]
fn gen_signature_of_salt_key_makes_the_signature_of_stock() -> TestResult {
    for release in [Release::V3006, Release::V3008] {
        let configure = |config: &mut saltern_tests::Config| {
            config
                .set("salt_compat", format!("'{}'", release.compat()))
                .set("publish_signing_algorithm", "PKCS1v15-SHA224")
                .set("master_pubkey_signature", "signature");
        };
        Site::prepared(Server::Stock(release), configure, |site| {
            let pki = site.path("pki");
            fs::create_dir_all(&pki)?;
            for name in ["master", "master_sign"] {
                let key = Rsa::generate(2048)?;
                fs::write(pki.join(format!("{name}.pem")), key.private_key_to_pem()?)?;
                fs::write(pki.join(format!("{name}.pub")), key.public_key_to_pem()?)?;
            }
            let made = |mut command: Command| -> Result<String> {
                run(&mut command, SOON * 2)?.expect_code(0)?;
                let text = fs::read_to_string(pki.join("signature"))?;
                fs::remove_file(pki.join("signature"))?;
                Ok(text)
            };
            let stock = made(site.stock_command("salt-key", &["--gen-signature"]))?;
            let ours = made(site.own_command("salt-key", &["--gen-signature"]))?;
            ensure!(stock == ours, "stock:\n{stock}\nours:\n{ours}");
            Ok(())
        })?;
    }
    Ok(())
}

/// A running master notices what the command does: an accepted minion gets in, a deleted one is
/// refused, and each change is an event.
#[test]
fn running_master_notices_our_salt_key() -> TestResult {
    Site::run(
        Server::Saltern(Release::V3008),
        |_| {},
        |site| {
            site.start_minion("m1", MinionKind::Native)?;
            site.wait_pending("m1")?;
            let mark = site.events().mark();
            own(site, &["-a", "m1", "-y"])?.expect_text("Key for minion m1 accepted.")?;
            site.wait_started("m1")?;
            site.salt(&["-t", "60", "m1", "test.ping"])?
                .expect_code(0)?;
            site.kill_minion("m1");
            site.announce("m1");
            let mut session = site.session_of("m1")?;
            session.send("before")?;
            own(site, &["-d", "m1", "-y"])?.expect_text("Key for minion m1 deleted.")?;
            ensure!(session.is_refused("after")?, "an event got through");
            for act in ["accepted", "delete"] {
                site.events()
                    .find_since(mark, "the event of the key", SOON, |event| {
                        let is_it = event.tag == "salt/key" && event.data["act"] == act;
                        is_it.then_some(())
                    })?;
            }
            Ok(())
        },
    )
}

/// A user of external authentication works on the master's keys, and one without the right does not.
#[test]
fn salt_key_with_eauth_asks_the_master() -> TestResult {
    Site::run(
        Server::Saltern(Release::V3008),
        |config| {
            let rights = "{sharedsecret: {ana: ['@wheel'], eve: ['test.ping']}}";
            config
                .set("external_auth", rights)
                .set("sharedsecret", "'open sesame'");
        },
        |site| {
            for (id, _) in [("m1", ()), ("m2", ())] {
                site.accept_beforehand(id)?;
                let (from, to) = (format!("pki/minions/{id}"), format!("pki/minions_pre/{id}"));
                fs::rename(site.path(from), site.path(to))?;
            }
            let login = |user| {
                [
                    "--eauth=sharedsecret",
                    "--username",
                    user,
                    "--password=open sesame",
                ]
            };
            let ana = |words: &[&str]| own(site, &[words, &login("ana")[..]].concat());
            ana(&["-L"])?.expect_stdout(
                "Accepted Keys:\nDenied Keys:\nUnaccepted Keys:\nm1\nm2\nRejected Keys:",
            )?;
            ana(&["-a", "m1", "-y"])?.expect_text("Key for minion m1 accepted.")?;
            ana(&["-r", "m2", "-y"])?.expect_text("Key for minion m2 rejected.")?;
            ana(&["-f", "m1"])?.expect_text("Accepted Keys:\nm1:  ")?;
            ana(&["-d", "m1", "-y"])?.expect_text("Key for minion m1 deleted.")?;
            ana(&["-l", "all"])?.expect_text("Rejected Keys:\nm2")?;
            site.announce("eve");
            let eve = own(site, &[&["-L"][..], &login("eve")[..]].concat())?;
            eve.expect_text("the master refused")?;
            Ok(())
        },
    )
}

fn own(site: &Site, words: &[&str]) -> Result<Run> {
    let done = run(&mut site.own_command("salt-key", words), SOON)?;
    done.expect_code(0)?;
    Ok(done)
}
