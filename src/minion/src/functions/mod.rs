//! The functions of the minion: their table, the binding of their arguments, and the returns for
//! unknown functions and invalid calls.
//!
//! The texts of failures are stock's (`salt/minion.py`, `_thread_return`), since people and
//! scripts know them. The documentation texts are our own.

pub(crate) mod arguments;
mod as_user;
mod cmd;
pub(crate) mod grains;
mod key;
mod saltutil;
mod sys;
mod test;

use std::sync::Arc;

use futures_util::future::BoxFuture;
use saltern_channel::MasterKeyStore;
use saltern_wire::msgpack::Value;

use crate::jobs::{JobTable, RunningJob};
use crate::python::IntError;
use arguments::{Arguments, BindError, Signature};

/// Context of a function call.
pub(crate) struct Context {
    /// The minion's grains.
    pub(crate) grains: Arc<Value>,
    /// The jobs that run now.
    pub(crate) jobs: Arc<JobTable>,
    /// Where the master's key is kept.
    pub(crate) master_key: Arc<dyn MasterKeyStore>,
}

/// One call of a function.
pub(crate) struct Call {
    pub(crate) context: Arc<Context>,
    /// The job that the call belongs to.
    pub(crate) job: Arc<RunningJob>,
    pub(crate) arguments: Arguments,
}

/// Why a function gave no result. The first two are stock's exceptions of these names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// `SaltInvocationError`: it was asked for something impossible.
    Invocation(String),
    /// `CommandExecutionError`: it tried and failed.
    Execution(String),
    /// Any other exception.
    Exception(String),
}

impl From<IntError> for Failure {
    fn from(error: IntError) -> Self {
        Self::Exception(error.to_string())
    }
}

/// Result of a function.
pub(crate) struct FunctionResult {
    pub(crate) value: Value,
    pub(crate) retcode: i64,
}

impl FunctionResult {
    pub(crate) fn ok(value: impl Into<Value>) -> Self {
        Self {
            value: value.into(),
            retcode: 0,
        }
    }
}

type Outcome = Result<FunctionResult, Failure>;
type Body = fn(Call) -> BoxFuture<'static, Outcome>;

/// One function of the table.
pub(crate) struct Function {
    /// Its whole name, `module.function`.
    pub(crate) name: &'static str,
    /// Documentation text, for `sys.doc` and wrong calls.
    pub(crate) doc: &'static str,
    pub(crate) signature: Signature,
    pub(crate) body: Body,
    /// Whether it is over at once, so that it need not wait for its turn behind long jobs.
    pub(crate) quick: bool,
    /// The outputter that stock's function of this name asks for (`__outputter__`).
    pub(crate) out: Option<&'static str>,
}

/// Every function, sorted by name.
pub(crate) const FUNCTIONS: &[Function] = &[
    cmd::RUN,
    grains::GET,
    grains::ITEM,
    grains::ITEMS,
    grains::LS,
    key::FINGER_MASTER,
    saltutil::FIND_JOB,
    saltutil::KILL_JOB,
    saltutil::RUNNING,
    saltutil::TERM_JOB,
    sys::DOC,
    sys::LIST_FUNCTIONS,
    test::ARG,
    test::ECHO,
    test::FIB,
    test::PING,
    test::RETCODE,
    test::SLEEP,
    test::VERSION,
];

/// The function of this name.
pub(crate) fn find(name: &str) -> Option<&'static Function> {
    let place = FUNCTIONS.binary_search_by_key(&name, |function| function.name);
    place.ok().and_then(|place| FUNCTIONS.get(place))
}

/// Return of a job's function.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FunctionReturn {
    pub(crate) value: Value,
    pub(crate) retcode: i64,
    pub(crate) success: bool,
    pub(crate) out: Option<&'static str>,
}

impl FunctionReturn {
    fn failed(value: impl Into<Value>) -> Self {
        Self {
            value: value.into(),
            retcode: 1,
            success: false,
            out: Some("nested"),
        }
    }

    fn of(answer: FunctionResult, out: Option<&'static str>) -> Self {
        let mut retcode = answer.retcode;
        // A map that says it is no success counts as a failure.
        let denies = |name| answer.value.get(name).is_some_and(|flag| !flag.is_truthy());
        if retcode == 0 && (denies("result") || denies("success")) {
            retcode = 1;
        }
        Self {
            value: answer.value,
            retcode,
            success: retcode == 0,
            out,
        }
    }
}

/// Runs one function with the arguments as they came in the load.
pub(crate) async fn call(
    context: Arc<Context>,
    job: Arc<RunningJob>,
    name: &str,
    given: &[Value],
) -> FunctionReturn {
    let Some(function) = find(name) else {
        return missing(name);
    };
    let arguments = match arguments::bind(&function.signature, given, &job.load) {
        Ok(arguments) => arguments,
        Err(BindError::Keywords(names)) => {
            return FunctionReturn::failed(format!(
                "ERROR executing '{name}': The following keyword arguments are not valid: {names}"
            ));
        }
        Err(BindError::Type(message)) => {
            return FunctionReturn::failed(format!(
                "Passed invalid arguments to {name}: {message}\n{}",
                function.doc
            ));
        }
    };
    match (function.body)(Call {
        context,
        job,
        arguments,
    })
    .await
    {
        Ok(answer) => FunctionReturn::of(answer, function.out),
        Err(Failure::Execution(text)) => FunctionReturn::failed(format!("ERROR: {text}")),
        Err(Failure::Invocation(text)) => {
            FunctionReturn::failed(format!("ERROR executing '{name}': {text}"))
        }
        Err(Failure::Exception(text)) => {
            FunctionReturn::failed(format!("The minion function caused an exception: {text}"))
        }
    }
}

/// A function that is not there; names that begin with it are listed with their documentation.
fn missing(name: &str) -> FunctionReturn {
    let text = format!("'{name}' is not available.");
    let mut docs: Vec<(Value, Value)> = sys::docs_beginning_with(name);
    if docs.is_empty() {
        return FunctionReturn::failed(text);
    }
    docs.push((Value::from(name), Value::from(text)));
    FunctionReturn::failed(Value::Map(docs))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn function_table_is_sorted_by_name() {
        assert!(FUNCTIONS.is_sorted_by_key(|function| function.name));
    }

    fn run(name: &str, given: &[Value]) -> FunctionReturn {
        let jobs = Arc::new(JobTable::default());
        let context = Arc::new(Context {
            grains: Arc::new(Value::Map(Vec::new())),
            jobs: Arc::clone(&jobs),
            master_key: Arc::new(saltern_channel::MemoryStore::default()),
        });
        let load = Value::map([("jid", Value::from("1")), ("fun", Value::from(name))]);
        let job = jobs.start("1", load).expect("the table is empty");
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime")
            .block_on(call(context, job, name, given))
    }

    fn keywords(pairs: &[(&str, Value)]) -> Value {
        let mut entries = vec![(Value::from("__kwarg__"), Value::from(true))];
        entries.extend(
            pairs
                .iter()
                .map(|(key, value)| (Value::from(*key), value.clone())),
        );
        Value::Map(entries)
    }

    #[test]
    fn invalid_calls_are_answered_as_by_stock() {
        let text = |text: &str| Value::from(text);
        let cases = [
            ("no.such", vec![], "'no.such' is not available."),
            (
                "test.echo",
                vec![],
                "Passed invalid arguments to test.echo: echo() missing 1 required positional \
                 argument: 'text'\n",
            ),
            (
                "test.ping",
                vec![text("x")],
                "Passed invalid arguments to test.ping: ping() takes 0 positional arguments but \
                 1 was given\n",
            ),
            (
                "test.ping",
                vec![keywords(&[("a", Value::from(1_i64))])],
                "ERROR executing 'test.ping': The following keyword arguments are not valid: a=1",
            ),
            (
                "test.fib",
                vec![text("x")],
                "The minion function caused an exception: ",
            ),
            (
                "cmd.run",
                vec![text("true"), keywords(&[("cwd", text("no"))])],
                "ERROR: Specified cwd",
            ),
            (
                "cmd.run",
                vec![text("x"), keywords(&[("shell", text("/no"))])],
                "ERROR: The shell /no is",
            ),
        ];
        for (name, given, beginning) in cases {
            let answer = run(name, &given);
            let shown = answer.value.as_str().unwrap_or_default().to_owned();
            assert!(shown.starts_with(beginning), "{name}: {:?}", answer.value);
            assert_eq!(
                (answer.retcode, answer.success, answer.out),
                (1, false, Some("nested"))
            );
        }
    }

    #[test]
    fn function_prefix_lists_its_functions() {
        let answer = run("test.pin", &[]);
        assert_eq!(
            answer.value.get("test.pin"),
            Some(&Value::from("'test.pin' is not available."))
        );
        assert!(answer.value.get("test.ping").is_some());
    }

    #[test]
    fn test_functions_return_their_values() {
        assert_eq!(run("test.ping", &[]).value, Value::from(true));
        assert_eq!(
            run("test.echo", &[Value::from("x")]).value,
            Value::from("x")
        );
        let fib = run("test.fib", &[Value::from(10_i64)]).value;
        assert_eq!(
            fib.as_array().and_then(|pair| pair.first()),
            Some(&Value::from(55_i64))
        );
        let given = [Value::from(1_i64), keywords(&[("k", Value::from("v"))])];
        let arg = run("test.arg", &given).value;
        assert_eq!(
            arg.get("args"),
            Some(&Value::from(vec![Value::from(1_i64)]))
        );
        let kwargs = arg.get("kwargs").expect("kwargs");
        assert_eq!(kwargs.get("k"), Some(&Value::from("v")));
        assert_eq!(kwargs.get("__pub_jid"), Some(&Value::from("1")));
        assert_eq!(run("test.retcode", &[]).retcode, 42);
    }

    #[test]
    fn cmd_run_gives_output_and_return_code() {
        let text = |text: &str| Value::from(text);
        let cases = [
            (
                vec![text("echo hello; echo err >&2; exit 3")],
                "hello\nerr",
                3,
            ),
            (
                vec![
                    text("echo $X-$Y"),
                    keywords(&[(
                        "env",
                        Value::map([("X", text("1")), ("Y", Value::from(true))]),
                    )]),
                ],
                "1-True",
                0,
            ),
            (
                vec![
                    text("echo a b"),
                    keywords(&[("python_shell", Value::from(false))]),
                ],
                "a b",
                0,
            ),
            (
                vec![
                    text("echo $HOME"),
                    keywords(&[("python_shell", Value::from(false))]),
                ],
                "$HOME",
                0,
            ),
            (
                vec![text("pwd"), keywords(&[("cwd", text("/tmp"))])],
                "/tmp",
                0,
            ),
            (
                vec![text("cat"), keywords(&[("stdin", text("a\\nb"))])],
                "a\nb",
                0,
            ),
            (vec![text("kill -9 $$")], "", -9),
            (
                vec![
                    text("exit 3"),
                    keywords(&[("ignore_retcode", Value::from(true))]),
                ],
                "",
                0,
            ),
            (
                vec![
                    text("exit 3"),
                    keywords(&[("success_retcodes", Value::from(vec![Value::from(3_i64)]))]),
                ],
                "",
                0,
            ),
            (
                vec![
                    text("echo x"),
                    keywords(&[("hide_output", Value::from(true))]),
                ],
                "",
                0,
            ),
            (
                vec![
                    text("sleep 60"),
                    keywords(&[("timeout", Value::from(0.05))]),
                ],
                "sleep 60 : Timed out after 0.05 seconds",
                1,
            ),
        ];
        for (given, output, retcode) in cases {
            let answer = run("cmd.run", &given);
            assert_eq!(answer.value, Value::from(output), "{given:?}");
            assert_eq!(answer.retcode, retcode, "{given:?}");
        }
    }
}
