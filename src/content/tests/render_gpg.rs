//! The `gpg` renderer: with a program in the place of gpg that knows good messages from bad ones,
//! and with the system's own gpg and a key that is made for the test.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use saltern_base::clock::Clock;
use saltern_content::render::functions::Registry;
use saltern_content::render::jinja::{Context, Limits, NoTemplates};
use saltern_content::render::{
    DecryptRules, ErrorClass, RenderError, Renderers, decrypt_pillar, render,
};
use saltern_wire::msgpack::Value;

/// Prints what stands in a good message after the word `good`; refuses others.
const PROGRAM: &str = "#!/bin/sh
[ \"$1\" = --homedir ] && [ -d \"$2\" ] || exit 9
text=$(sed -n 's/^good //p')
[ -n \"$text\" ] && printf %s \"$text\" || exit 2
";

fn message(text: &str) -> String {
    format!("-----BEGIN PGP MESSAGE-----\n\n{text}\n-----END PGP MESSAGE-----")
}

fn rendered(source: &str, directory: &Path, must: bool) -> Result<Value, RenderError> {
    let program = directory.join("gpg");
    fs::write(&program, PROGRAM).expect("the directory is ours");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).expect("the file is ours");
    let mut renderers = Renderers::default();
    renderers.gpg.program = program;
    renderers.gpg.key_directory = directory.to_owned();
    renderers.gpg.must_succeed = must;
    let context = Context {
        values: Vec::new(),
        functions: Arc::new(Registry::new()),
        loader: Arc::new(NoTemplates),
        clock: Clock::system(),
        limits: Limits::DEFAULT,
        python: None,
    };
    render(source, "secret.sls", &renderers, &context)
}

fn sls(text: &str) -> String {
    let lines = message(text).replace('\n', "\n    ");
    format!("#!jinja|yaml|gpg\nplain: {{{{ 1 }}}}\nlist:\n  - a\n  - |\n    {lines}\n")
}

#[test]
fn pgp_messages_are_decrypted_anywhere_in_the_data() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = rendered(&sls("good secret"), directory.path(), true).expect("it renders");
    assert_eq!(data.get("plain"), Some(&Value::Int(1)));
    let list = data.get("list").and_then(Value::as_array).expect("a list");
    assert_eq!(list.first(), Some(&Value::from("a")));
    assert_eq!(list.get(1), Some(&Value::from("secret")));
}

#[test]
fn undecryptable_message_is_an_error_or_stays() {
    let directory = tempfile::tempdir().expect("a directory");
    let error = rendered(&sls("bad"), directory.path(), true).expect_err("it is bad");
    assert_eq!(error.class, ErrorClass::Data);
    let data = rendered(&sls("bad"), directory.path(), false).expect("it stays");
    let list = data.get("list").and_then(Value::as_array).expect("a list");
    assert_eq!(list.get(1), Some(&Value::from(message("bad"))));
}

#[test]
fn gpg_is_not_started_without_a_message() {
    let directory = tempfile::tempdir().expect("a directory");
    let gone = directory.path().join("nothing");
    let mut renderers = Renderers::default();
    renderers.gpg.program = gone;
    let context = Context {
        values: Vec::new(),
        functions: Arc::new(Registry::new()),
        loader: Arc::new(NoTemplates),
        clock: Clock::system(),
        limits: Limits::DEFAULT,
        python: None,
    };
    let data = render("#!yaml|gpg\na: b\n", "x.sls", &renderers, &context);
    assert_eq!(
        data,
        Ok(Value::Map(vec![(Value::from("a"), Value::from("b"))]))
    );
}

/// A directory of keys with one key, and the agent that gpg starts for it.
struct Keys(tempfile::TempDir);

impl Keys {
    fn new() -> Keys {
        let keys = Keys(tempfile::tempdir().expect("a directory"));
        let made = keys.gpg(
            &[
                "--passphrase",
                "",
                "--quick-generate-key",
                "saltern@test",
                "future-default",
            ],
            "",
        );
        assert!(made.is_ok(), "a key is needed: {made:?}");
        keys
    }

    fn path(&self) -> PathBuf {
        self.0.path().to_owned()
    }

    /// Runs gpg; what it prints, or the errors that it prints.
    fn gpg(&self, args: &[&str], input: &str) -> Result<String, String> {
        let mut child = Command::new("gpg")
            .arg("--homedir")
            .arg(self.0.path())
            .args(["--batch", "--no-tty", "--trust-model", "always"])
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program \"gpg\" is needed for this test");
        let mut stdin = child.stdin.take().expect("it has an input");
        stdin.write_all(input.as_bytes()).expect("it reads");
        drop(stdin);
        let done = child.wait_with_output().expect("it ends");
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        match done.status.success() {
            true => Ok(text(&done.stdout)),
            false => Err(text(&done.stderr)),
        }
    }

    fn encrypted(&self, text: &str) -> String {
        let args = ["--armor", "--encrypt", "--recipient", "saltern@test"];
        self.gpg(&args, text).expect("it encrypts")
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        let mut command = Command::new("gpgconf");
        let command = command.arg("--homedir").arg(self.0.path());
        // The agent of this directory; without it nothing is left to end.
        let _ = command.args(["--kill", "gpg-agent"]).status();
    }
}

fn context() -> Context {
    Context {
        values: Vec::new(),
        functions: Arc::new(Registry::new()),
        loader: Arc::new(NoTemplates),
        clock: Clock::system(),
        limits: Limits::DEFAULT,
        python: None,
    }
}

#[test]
fn the_real_gpg_decrypts_what_was_encrypted_for_its_key() {
    let keys = Keys::new();
    let mut renderers = Renderers::default();
    renderers.gpg.key_directory = keys.path();
    let message = keys.encrypted("gr\u{fc}n secret\nsecond line\n");
    let lines = message.trim_end().replace('\n', "\n    ");
    let source = format!("#!jinja|yaml|gpg\nn: {{{{ 1 + 1 }}}}\nlist:\n  - |\n    {lines}\nx: y\n");
    let data = render(&source, "secret.sls", &renderers, &context()).expect("it renders");
    assert_eq!(data.get("n"), Some(&Value::Int(2)));
    let plain = Value::from("gr\u{fc}n secret\nsecond line");
    assert_eq!(data.get("list"), Some(&Value::Array(vec![plain.clone()])));

    // On one line, with the line ends written out, and with text around it.
    let flat = keys.encrypted("flat").trim_end().replace('\n', "\\n");
    let source = format!("#!yaml|gpg\na: 'before {flat} after'\n");
    let data = render(&source, "flat.sls", &renderers, &context()).expect("it renders");
    assert_eq!(data.get("a"), Some(&Value::from("before flat after")));

    // The order of the stages is the template's.
    let source = format!("#!gpg|jinja|yaml\n{}", keys.encrypted("a: {{ 3 * 2 }}"));
    let data = render(&source, "whole.sls", &renderers, &context());
    assert_eq!(data, Ok(Value::map([("a", Value::Int(6))])));

    let rules = DecryptRules::from_opts(&Value::map([(
        "decrypt_pillar",
        Value::Array(vec![Value::from("app:secret"), Value::from("none:at:all")]),
    )]));
    let secret = Value::map([
        ("secret", Value::from(message)),
        ("other", Value::from("-----BEGIN PGP MESSAGE-----")),
    ]);
    let pillar = Value::map([("app", secret)]);
    let pillar = decrypt_pillar(pillar, &rules, &renderers, &context()).expect("in time");
    let app = pillar.get("app").expect("it is there");
    assert_eq!(app.get("secret"), Some(&plain));
    assert_eq!(
        app.get("other"),
        Some(&Value::from("-----BEGIN PGP MESSAGE-----"))
    );
    assert_eq!(pillar.get("_errors"), None);
}

#[test]
fn the_real_gpg_refuses_what_was_encrypted_for_another_key() {
    let (ours, theirs) = (Keys::new(), Keys::new());
    let mut renderers = Renderers::default();
    renderers.gpg.key_directory = ours.path();
    let lines = theirs.encrypted("x").trim_end().replace('\n', "\n  ");
    let source = format!("#!yaml|gpg\na: |-\n  {lines}\n");
    let error = render(&source, "x.sls", &renderers, &context()).expect_err("no key");
    assert_eq!(error.class, ErrorClass::Data);
    renderers.gpg.must_succeed = false;
    let data = render(&source, "x.sls", &renderers, &context()).expect("it stays");
    let kept = data.get("a").and_then(Value::as_str).expect("a text");
    assert!(kept.starts_with("-----BEGIN PGP MESSAGE-----"));
}
