//! The program of the helpers itself, in a real Python with a Salt made for the test: however the
//! process of a call ends, its caller is answered once.

use super::*;
use crate::{ReturnerCall, Step};

const FAKE_SALT: &str = include_str!("fake_salt.py");

/// A bridge to `python3`, which finds the fake where it looks for Salt.
fn bridge_to_python() -> (TempDir, Bridge) {
    let (top, bridge) = bridge("", "python_bridge_runners: 1");
    let fake = top.path().join("fake_salt.py");
    let wrapper = format!(
        "#!/bin/sh\n\
         case \"$3\" in *find_spec*) exit 0;; esac\n\
         exec python3 -I -c \"exec(open('{}').read(), {{}})\n$5\"\n",
        fake.display()
    );
    fs::write(fake, FAKE_SALT).expect("it can be written");
    fs::write(top.path().join("python3"), wrapper).expect("it can be written");
    (top, bridge)
}

fn run(bridge: &Bridge, fun: &str) -> Result<Value, String> {
    let call = Call {
        fun: format!("fake.{fun}"),
        positional: Vec::new(),
        named: Vec::new(),
        jid: "20200101000000000000".to_owned(),
        tag: "salt/run/20200101000000000000".to_owned(),
        user: "root".to_owned(),
    };
    let given = bridge.call(&Work::Runner(&call), LONG);
    given.map_err(|error| error.to_string())
}

#[test]
fn call_is_answered_once_however_its_process_ends() {
    let (_top, bridge) = bridge_to_python();
    let failed = |fun: &str, problem: &str| Err(format!("the runner \"fake.{fun}\": {problem}"));
    let table = [
        (
            "leave",
            failed("leave", "its process ended with code 0 before it answered"),
        ),
        ("interrupt", failed("interrupt", "KeyboardInterrupt")),
        ("mute", failed("mute", "Mute")),
        ("split", Ok("one".into())),
        ("die_after_its_answer", Ok("said".into())),
    ];
    // Each by the same helper: an answer too many would be taken for that of the next.
    for (fun, expected) in table.iter().chain(&table) {
        assert_eq!(run(&bridge, fun), *expected);
    }
    let problem = run(&bridge, "strange").expect_err("it has no form");
    assert!(problem.contains("object cannot be packed"), "{problem}");
    assert_eq!(bridge.pool(Lane::Runner).state.lock().idle.len(), 1);
}

/// The process of a test is its own, so its umask is, too.
#[test]
fn modules_of_the_site_have_the_umask_that_they_have_under_stock() {
    saltern_base::umask::remember_inherited(0o002);
    rustix::process::umask(Mode::from_raw_mode(0o027));
    let (_top, bridge) = bridge_to_python();
    assert_eq!(run(&bridge, "umask"), Ok("022".into()));
}

#[test]
fn truncated_answer_ends_its_helper_only() {
    let (_top, bridge) = bridge_to_python();
    assert_eq!(
        run(&bridge, "die_while_it_answers"),
        Err(
            "the Python helper that ran the runner \"fake.die_while_it_answers\" ended with code \
             1: the process of a call was ended by signal 9 while it answered"
                .to_owned()
        )
    );
    assert_eq!(run(&bridge, "split"), Ok("one".into()));
}

#[test]
fn each_step_of_an_orchestration_is_reported_once_as_it_ends() {
    let (_top, bridge) = bridge_to_python();
    let call = Call {
        fun: "state.orchestrate".to_owned(),
        positional: Vec::new(),
        named: Vec::new(),
        jid: "20200101000000000000".to_owned(),
        tag: "salt/run/20200101000000000000".to_owned(),
        user: "root".to_owned(),
    };
    let mut steps = Vec::new();
    let given = bridge.call_with_progress(&Work::Runner(&call), LONG, &mut |what, step| {
        assert_eq!(what, "saltern_step");
        let text = |name: &str| step.get(name).and_then(Value::as_str).unwrap().to_owned();
        let result = step.get("result").and_then(Value::as_bool);
        let has_changes = step.get("has_changes").and_then(Value::as_bool);
        let comment = text("comment");
        assert!(comment.len() <= 500, "{comment}");
        steps.push((text("id"), text("name"), result, has_changes, comment));
    });
    assert_eq!(given, Ok("done".into()));
    let long = "c".repeat(500);
    let step = |id: &str, name: &str, result, has_changes, comment: &str| {
        let texts = (id.to_owned(), name.to_owned(), comment.to_owned());
        (texts.0, texts.1, result, Some(has_changes), texts.2)
    };
    let expected = [
        step("id 0", "name 0", Some(true), true, &long),
        step("id 1", "name 1", None, false, &long),
        step("id 2", "name 2", Some(false), false, &long),
        step("parallel", "test.ping", Some(false), false, "it\ndied"),
        step("second", "test.ping", None, false, ""),
        step("first", "test.ping", Some(true), true, ""),
    ];
    assert_eq!(steps, expected);
}

/// Runs one step of a returner for each jid: gives the events `step`, and the result of the call.
fn store(bridge: &Bridge, jids: &[&'static str]) -> (Vec<Value>, Result<Value, BridgeError>) {
    let save = |jid: &&'static str| {
        vec![ReturnerCall::SaveLoad {
            jid,
            load: b"\x80",
            minions: Some(Vec::new()),
        }]
    };
    let steps: Vec<Step<'_>> = jids.iter().map(save).collect();
    let work = Work::Returner {
        name: "fake_returner",
        needs: "save_load",
        steps: &steps,
        patience: 9,
    };
    let mut events = Vec::new();
    let end = bridge.call_with_progress(&work, LONG, &mut |what, result| {
        assert_eq!(what, "step");
        events.push(result);
    });
    (events, end)
}

#[test]
fn returner_steps_are_reported_before_a_later_step_ends_python() {
    let (_top, bridge) = bridge_to_python();
    let (events, end) = store(&bridge, &["kept", "raised", "forked", "kept"]);
    let all = vec![Value::Nil, "raised".into(), Value::Nil, Value::Nil];
    assert_eq!(events, all);
    assert_eq!(end.ok(), Some(Value::Array(all)));
    let (events, end) = store(&bridge, &["kept", "raised", "died", "kept"]);
    assert_eq!(events, [Value::Nil, "raised".into()]);
    assert!(matches!(end, Err(BridgeError::Died { .. })));
}
