//! Stock Salt reads what this crate wrote: its own `local_cache` the job files, its own key class
//! and key driver the PKI tree and the master's keys, its own crypticle the session key.

use std::fs;
use std::process::Command;

use saltern_base::clock::Clock;
use saltern_model::Compat;
use saltern_store::{
    DatabaseLimits, Dropfile, JobDatabase, MasterKeys, Mirror, PkiTree, Sessions, StoreOptions,
    Write, dropfile,
};
use saltern_wire::msgpack::Value;

use crate::common::{admit, id, jid, job, pem, place, ret};

/// Runs a script with stock's master options for this site; its last line is one JSON value.
fn ask(options: &StoreOptions, script: &str) -> serde_json::Value {
    let root = options.pki_dir.parent().expect("a root");
    let config = root.join("master");
    let text = format!(
        "root_dir: {root}\npki_dir: {pki}\ncachedir: {cache}\nsock_dir: {root}/run\n\
         log_file: {root}/log\nid: {id}\nuser: {user}\n",
        root = root.display(),
        pki = options.pki_dir.display(),
        cache = options.cachedir.display(),
        id = options.id,
        user = options.user,
    );
    fs::write(&config, text).expect("a configuration");
    let script = format!(
        "import json, sys, salt.config\nopts = salt.config.master_config({:?})\n{script}\n\
         print(json.dumps(answer))\n",
        config.display().to_string()
    );
    let output = Command::new(saltern_stock::python(saltern_stock::NEWEST))
        .args(["-W", "ignore", "-c", &script])
        .output()
        .expect("stock's python starts");
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{script}\n{out}\n{err}");
    let last = out.lines().last().unwrap_or_default();
    serde_json::from_str(last).unwrap_or_else(|error| panic!("{error}: {out}\n{err}"))
}

#[test]
fn stock_reads_the_job_files() {
    for hash in ["sha256", "md5"] {
        let (_dir, mut options) = place(Compat::V3008);
        options.hash_type = hash.to_owned();
        fs::create_dir_all(options.private_dir()).expect("a directory");
        let mut database = JobDatabase::open(&options.job_database, DatabaseLimits::default())
            .expect("a database");
        let nested = Value::map([
            ("text", Value::from("größe")),
            ("list", Value::Array(vec![Value::from(1_i64), Value::Nil])),
            ("bytes", Value::Bin(vec![0xff, 0x00].into())),
        ]);
        database
            .commit(&[
                Write::Job(job(1, &["m2", "m1", "größe"])),
                Write::Return(ret(1, "m1", Value::from(true))),
                Write::Return(ret(1, "größe", nested)),
            ])
            .expect("committed");
        let reader = database.reader().expect("a reader");
        let mut mirror = Mirror::with_options(&options, reader).expect("a mirror");
        while mirror.step(100).expect("a step") > 0 {}
        let script = format!(
            "import salt.loader\n\
             opts['hash_type'] = '{hash}'\n\
             returners = salt.loader.returners(opts, {{}})\n\
             jid = '{jid}'\n\
             found = returners['local_cache.get_jid'](jid)\n\
             assert found['größe']['return'].pop('bytes') == b'\\xff\\x00'\n\
             answer = {{'load': returners['local_cache.get_load'](jid), 'returns': found,\n\
                       'jids': returners['local_cache.get_jids']()}}",
            jid = jid(1)
        );
        let answer = ask(&options, &script);
        let load = &answer["load"];
        assert_eq!(load["fun"], "test.ping");
        assert_eq!(load["arg"], serde_json::json!([]));
        assert_eq!(load["Minions"], serde_json::json!(["größe", "m1", "m2"]));
        let returned = |value: serde_json::Value| {
            let mut parts = serde_json::json!({"retcode": 0, "success": true, "out": "nested"});
            parts["return"] = value;
            parts
        };
        let nested = serde_json::json!({"text": "größe", "list": [1, null]});
        let expected = serde_json::json!({
            "m1": returned(serde_json::json!(true)),
            "größe": returned(nested),
        });
        assert_eq!(answer["returns"], expected);
        assert_eq!(answer["jids"][jid(1).as_str()]["Function"], "test.ping");
    }
}

#[test]
fn stock_reads_the_tree_of_keys_and_works_on_it() {
    let (_dir, options) = place(Compat::V3008);
    let tree = PkiTree::with_options(&options, Clock::system()).expect("a tree");
    MasterKeys::with_options(&options).expect("keys");
    Sessions::with_options(&options, Clock::system()).expect("a cachedir");
    tree.accept(&id("accepted"), &pem(0)).expect("stored");
    tree.pend(&id("pending"), &pem(1)).expect("stored");
    tree.reject(&id("rejected"), &pem(0)).expect("stored");
    tree.deny(&id("denied"), &pem(1)).expect("stored");
    let script = "import salt.key\n\
        key = salt.key.Key(opts)\n\
        before = key.list_keys()\n\
        key.accept('pending')\n\
        key.delete_key('accepted')\n\
        answer = {'before': before, 'after': key.list_keys()}";
    let answer = ask(&options, script);
    let expected = serde_json::json!({
        "minions": ["accepted"],
        "minions_pre": ["pending"],
        "minions_rejected": ["rejected"],
        "minions_denied": ["denied"],
    });
    assert_eq!(answer["before"], expected);
    // What stock did counts for the tree that is open here.
    let names: Vec<String> = tree
        .accepted()
        .expect("ids")
        .sorted()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(names, ["pending"]);
    assert!(tree.accepted_key(&id("accepted")).expect("read").is_none());
    let key = tree
        .accepted_key(&id("pending"))
        .expect("read")
        .expect("a key");
    assert_eq!(key.pem(), pem(1).trim());
    // Deleting a key asks for a new shared key, in a way that is understood here.
    assert_eq!(
        dropfile::take_with(&options).expect("a dropfile"),
        Dropfile::Rotate
    );
    assert_eq!(
        dropfile::take_with(&options).expect("used up"),
        Dropfile::None
    );
}

#[test]
fn stock_and_this_master_find_each_others_keys() {
    for compat in Compat::ALL {
        let (_dir, options) = place(compat);
        let ours = MasterKeys::with_options(&options).expect("keys");
        let script = "import salt.crypt\n\
            keys = salt.crypt.MasterKeys(opts)\n\
            answer = keys.get_pub_str()";
        assert_eq!(ask(&options, script), ours.public_pem.as_str());
        // 3008.3 has now renamed the key and left links; it is still found.
        let again = MasterKeys::with_options(&options).expect("keys");
        assert_eq!(again.public_pem, ours.public_pem, "{compat}");
    }
}

#[test]
fn stock_reads_a_session_key() {
    let (_dir, options) = place(Compat::V3008);
    let sessions = Sessions::with_options(&options, Clock::system()).expect("sessions");
    let session = admit(&sessions, &options, &id("m1"));
    let script = "import os, salt.crypt\n\
        path = os.path.join(opts['cachedir'], 'sessions', 'm1')\n\
        key = salt.crypt.Crypticle.read_key(path)\n\
        answer = list(salt.crypt.Crypticle(opts, key).dumps({'x': 1}))";
    let sealed: Vec<u8> = serde_json::from_value(ask(&options, script)).expect("bytes");
    let opened = session.crypticle.loads(&sealed).expect("opened");
    assert_eq!(opened.as_ref(), b"\x81\xa1x\x01");
}
