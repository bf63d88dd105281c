use std::path::Path;

use saltern_wire::msgpack::Value;

use super::*;

fn list(items: &[&str]) -> Value {
    Value::Array(items.iter().map(|item| Value::from(*item)).collect())
}

fn options() -> EauthOptions {
    EauthOptions {
        pam_service: None,
        shared_secret: Some(SecretString::new("the secret".to_owned())),
        permissive: false,
        acl_module: None,
    }
}

fn users() -> Value {
    Value::map([
        ("ana", list(&["test.*"])),
        ("ops%", list(&["@runner"])),
        ("*", list(&["grains.*"])),
    ])
}

fn enabled(name: &str, users: Value) -> ExternalAuth {
    ExternalAuth::new(&Value::map([(name, users)]), options())
}

#[test]
fn eauth_user_has_own_and_group_rules_or_those_of_everybody() {
    let auth = enabled("auto", users());
    let groups = |names: &[&str]| {
        names
            .iter()
            .map(|name| (*name).to_owned())
            .collect::<Vec<_>>()
    };
    let table = [
        ("ana", groups(&[]), list(&["test.*"])),
        ("ana", groups(&["x", "ops"]), list(&["test.*", "@runner"])),
        ("bob", groups(&["ops"]), list(&["@runner", "grains.*"])),
        ("bob", groups(&[]), list(&["grains.*"])),
        // Names are no patterns, in neither direction.
        ("an*", groups(&[]), list(&["grains.*"])),
        ("*", groups(&[]), list(&["grains.*"])),
        ("ops%", groups(&[]), list(&["grains.*"])),
    ];
    for (user, groups, expected) in table {
        let rules = auth.rules_of("auto", user, &groups);
        assert_eq!(rules.to_value(), expected, "{user} {groups:?}");
    }
    assert!(auth.rules_of("pam", "ana", &[]).is_empty());
}

#[test]
fn only_a_configured_backend_is_enabled() {
    let auth = enabled("auto", users());
    assert!(auth.is_enabled("auto") && !auth.is_enabled("pam"));
    // What a client sent is cut short in the log.
    let unknown = auth.knows(&"x".repeat(65), "ana", "");
    let Err(EauthError::NotEnabled(name)) = unknown else {
        panic!("it is not enabled");
    };
    assert_eq!(name, "x".repeat(64));
}

#[test]
fn credential_of_the_largest_size_is_checked_and_a_larger_one_is_not() {
    let auth = enabled("auto", users());
    let (largest, larger) = (MAX_CREDENTIAL_BYTES, MAX_CREDENTIAL_BYTES + 1);
    for (user, password, is_known) in [
        (largest, largest, true),
        (larger, largest, false),
        (largest, larger, false),
    ] {
        let known = auth.knows("auto", &"u".repeat(user), &"p".repeat(password));
        assert_eq!(known.unwrap().is_some(), is_known, "{user} {password}");
    }
}

/// A directory where a file is read fails for root, too.
#[test]
fn unreadable_file_of_passwords_is_a_local_fault() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    let auth = enabled("file", Value::map([("^filename", path)]));
    assert!(
        auth.knows("file", "ana", "x")
            .err()
            .unwrap()
            .is_local_fault()
    );
    assert!(
        !auth
            .knows("pam", "ana", "x")
            .err()
            .unwrap()
            .is_local_fault()
    );
}

#[test]
fn permissive_acl_ignores_the_wildcard_user() {
    let external_auth = Value::map([("auto", users())]);
    let permissive = EauthOptions {
        permissive: true,
        ..options()
    };
    let auth = ExternalAuth::new(&external_auth, permissive);
    assert!(auth.rules_of("auto", "bob", &[]).is_empty());
    assert_eq!(
        auth.rules_of("auto", "ana", &[]).to_value(),
        list(&["test.*"])
    );
}

#[test]
fn shared_secret_must_be_configured_and_equal() {
    let auth = enabled("sharedsecret", users());
    assert!(
        auth.knows("sharedsecret", "ana", "the secret")
            .unwrap()
            .is_some()
    );
    for (user, password) in [("ana", ""), ("ana", "the secre"), ("", "the secret")] {
        assert!(
            auth.knows("sharedsecret", user, password)
                .unwrap()
                .is_none()
        );
    }
    for secret in [None, Some(SecretString::new(String::new()))] {
        let without = EauthOptions {
            shared_secret: secret,
            ..options()
        };
        let external_auth = Value::map([("sharedsecret", users())]);
        let auth = ExternalAuth::new(&external_auth, without);
        assert!(auth.knows("sharedsecret", "ana", "").unwrap().is_none());
    }
}

#[test]
fn disabled_or_unknown_eauth_backend_knows_nobody_and_is_named() {
    let auth = enabled("ldap", users());
    assert!(auth.is_in_python("ldap") && !auth.is_in_python("auto"));
    // Without a bridge to Python nobody is known; with one that is off it is an error.
    assert!(auth.knows("ldap", "ana", "x").unwrap().is_none());
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().display();
    let options_file = directory.path().join("master");
    std::fs::write(
        &options_file,
        format!("root_dir: {root}\nid: m\npython_bridge: false\n"),
    )
    .unwrap();
    let loaded = saltern_config::load_master(&options_file);
    let config = loaded.unwrap_or_else(|errors| panic!("{errors}")).config;
    let auth = auth.with_bridge(Arc::new(Bridge::new(&config)));
    let error = auth.knows("ldap", "ana", "x").unwrap_err().to_string();
    assert!(
        error.contains("\"ldap\"") && error.contains("\"python_bridge\""),
        "{error}"
    );
    let refused: Vec<_> = auth.in_python().collect();
    assert!(matches!(
        refused.as_slice(),
        [("ldap", Some(BridgeError::Off { .. }))]
    ));
    assert!(auth.knows("ldap", "^model", "x").unwrap().is_none());
    let error = auth.knows("auto", "ana", "x").unwrap_err();
    assert!(matches!(error, EauthError::NotEnabled(_)));
    let by_module = EauthOptions {
        acl_module: Some("rest".to_owned()),
        ..options()
    };
    let auth = ExternalAuth::new(&Value::map([("auto", users())]), by_module);
    let error = auth.knows("auto", "ana", "x").unwrap_err();
    assert!(matches!(error, EauthError::NotServed(module) if module == "rest"));
}

/// A `file` backend on this content with these options.
fn file(dir: &Path, content: &str, more: &[(&str, &str)]) -> ExternalAuth {
    let path = dir.join("users");
    std::fs::write(&path, content).unwrap();
    let name = path.display().to_string();
    let entries = [("^filename", name.as_str())];
    let entries = entries.iter().chain(more);
    enabled(
        "file",
        Value::map(entries.map(|(key, value)| (*key, *value))),
    )
}

#[test]
fn files_of_all_forms_are_read_as_stock_reads_them() {
    let dir = tempfile::tempdir().unwrap();
    let sha256 = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
    let htpasswd = "# users\nbob:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\n\
                    ana:$apr1$abcdefgh$h9FWgUz3n9YxylKLlR5SQ/\n\
                    long:$apr1$xy$IAoav9jLpxZmHK9X26CJR1\n";
    type Row<'a> = (
        &'a str,
        &'a [(&'a str, &'a str)],
        &'a [(&'a str, &'a str, bool)],
    );
    let hashed = format!("7|bob|x\n8|ana|{sha256}\n");
    let table: [Row<'_>; 3] = [
        (
            "ana:secret\nbob:other:more\n",
            &[],
            &[
                ("ana", "secret", true),
                ("ana", "Secret", false),
                ("bob", "other", true),
                ("carl", "secret", false),
            ],
        ),
        (
            &hashed,
            &[
                ("^hashtype", "sha256"),
                ("^username_field", "2"),
                ("^password_field", "3"),
                ("^field_separator", "|"),
            ],
            &[
                ("ana", "secret", true),
                ("ana", sha256, false),
                ("bob", "x", false),
            ],
        ),
        (
            htpasswd,
            &[("^filetype", "htpasswd")],
            &[
                ("ana", "secret", true),
                ("ana", "other", false),
                ("bob", "secret", true),
                ("bob", "other", false),
                ("long", "a much longer password than sixteen", true),
                ("# users", "", false),
            ],
        ),
    ];
    for (content, options, questions) in table {
        let auth = file(dir.path(), content, options);
        for (user, password, expected) in questions {
            let known = auth.knows("file", user, password).unwrap().is_some();
            assert_eq!(known, *expected, "{user} {password} {options:?}");
        }
    }
}

#[test]
fn htdigest_hash_belongs_to_its_realm() {
    let dir = tempfile::tempdir().unwrap();
    let content = format!("ana:other:{DIGEST_OF_ANA}\nana:salt:{DIGEST_OF_ANA}\n");
    let options = [("^filetype", "htdigest"), ("^realm", "salt")];
    let auth = file(dir.path(), &content, &options);
    assert!(auth.knows("file", "ana", "secret").unwrap().is_some());
    assert!(auth.knows("file", "ana", "other").unwrap().is_none());
    let options = [("^filetype", "htdigest"), ("^realm", "other")];
    let auth = file(dir.path(), &content, &options);
    assert!(auth.knows("file", "ana", "secret").unwrap().is_none());
}

/// `printf ana:salt:secret | md5sum`.
const DIGEST_OF_ANA: &str = "466db53dc5c59453b10a6d84313d96ad";

#[test]
fn unusable_password_file_is_an_error_with_its_reason() {
    let dir = tempfile::tempdir().unwrap();
    type Row<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a str);
    let table: [Row<'_>; 6] = [
        ("ana", &[], "a field 2"),
        ("ana:x", &[("^hashtype", "rot13")], "rot13"),
        ("ana:x", &[("^filetype", "json")], "json"),
        ("ana:x", &[("^filetype", "htdigest")], "^realm"),
        ("ana:x", &[("^username_field", "0")], "^username_field"),
        ("ana:$2y$05$abc", &[("^filetype", "htpasswd")], "2y"),
    ];
    for (content, options, expected) in table {
        let auth = file(dir.path(), content, options);
        let EauthError::File(error) = auth.knows("file", "ana", "x").unwrap_err() else {
            panic!("{expected}: it is the file");
        };
        let error = error.to_string();
        assert!(error.contains(expected), "{expected}: {error}");
    }
    let auth = enabled("file", Value::map([("^filename", "/does/not/exist")]));
    assert!(auth.knows("file", "ana", "x").is_err());
    assert!(enabled("file", users()).knows("file", "ana", "x").is_err());
}

#[test]
fn password_file_of_the_largest_size_is_read_and_a_larger_one_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let auth = file(dir.path(), "ana:x", &[("^filetype", "htpasswd")]);
    let content = std::fs::File::options()
        .write(true)
        .open(dir.path().join("users"));
    let content = content.unwrap();
    content.set_len(16 << 20).unwrap();
    assert!(auth.knows("file", "bob", "x").unwrap().is_none());
    content.set_len((16 << 20) + 1).unwrap();
    let refused = auth.knows("file", "bob", "x").unwrap_err();
    assert!(matches!(
        refused,
        EauthError::File(FileError::TooLarge { .. })
    ));
}

#[test]
fn oversized_credentials_are_refused_without_asking_the_backend() {
    let long = "x".repeat(MAX_CREDENTIAL_BYTES + 1);
    let auth = enabled("auto", users());
    assert!(auth.knows("auto", &long, "x").unwrap().is_none());
    assert!(auth.knows("auto", "ana", &long).unwrap().is_none());
    assert!(auth.knows("auto", "", "x").unwrap().is_none());
}

/// The program of this test is no PAM helper, and ends with code zero: that proves nothing.
#[test]
fn pam_process_without_an_answer_grants_nothing() {
    let auth = enabled("pam", users());
    assert!(auth.knows("pam", "ana", "x").is_err());
    assert!(auth.knows("pam", "ana\0", "x").unwrap().is_none());
}
