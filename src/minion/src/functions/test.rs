//! `test.*`: functions that do nothing, to see whether all else works.

use std::time::Duration;

use futures_util::FutureExt;
use saltern_wire::msgpack::Value;
use tokio::time::Instant;

use super::arguments::{Parameter, Signature};
use super::{Failure, Function, FunctionResult};
use crate::python;

pub(crate) const ARG: Function = Function {
    name: "test.arg",
    doc: "Gives its arguments back: the positional ones as `args`, the others as `kwargs`.",
    signature: Signature {
        function: "arg",
        parameters: &[],
        more: true,
        keywords: true,
    },
    body: |call| {
        let keywords = call.arguments.keywords.into_iter();
        let keywords = keywords
            .map(|(key, value)| (Value::from(key), value))
            .collect();
        let value = Value::map([
            ("args", Value::from(call.arguments.rest)),
            ("kwargs", Value::Map(keywords)),
        ]);
        std::future::ready(Ok(FunctionResult::ok(value))).boxed()
    },
    quick: true,
    out: None,
};

pub(crate) const ECHO: Function = Function {
    name: "test.echo",
    doc: "Gives its text back.",
    signature: Signature {
        function: "echo",
        parameters: &[Parameter::Required("text")],
        more: false,
        keywords: false,
    },
    body: |call| {
        let text = call.arguments.get("text").cloned().unwrap_or(Value::Nil);
        std::future::ready(Ok(FunctionResult::ok(text))).boxed()
    },
    quick: true,
    out: None,
};

/// Beyond this the result does not fit 64 bits; stock sends such numbers as text.
const LAST_FIB: i64 = 93;

pub(crate) const FIB: Function = Function {
    name: "test.fib",
    doc: "The num-th Fibonacci number and the seconds it took, num being at most 93 here.",
    signature: Signature {
        function: "fib",
        parameters: &[Parameter::Required("num")],
        more: false,
        keywords: false,
    },
    body: |call| {
        let num = python::int(call.arguments.get("num").unwrap_or(&Value::Nil));
        std::future::ready(num.map_err(Failure::from).and_then(fib)).boxed()
    },
    quick: true,
    out: None,
};

fn fib(num: i64) -> Result<FunctionResult, Failure> {
    if num < 0 {
        let text = "Negative number is not allowed!";
        return Err(Failure::Exception(text.to_owned()));
    }
    if num > LAST_FIB {
        let text = format!("this minion counts to {LAST_FIB} only");
        return Err(Failure::Exception(text));
    }
    let start = Instant::now();
    let (mut previous, mut current) = (0_u64, 1_u64);
    for _ in 1..num {
        (previous, current) = (current, previous + current);
    }
    let result = if num == 0 { 0 } else { current };
    let seconds = start.elapsed().as_secs_f64();
    Ok(FunctionResult::ok(vec![
        Value::from(result),
        Value::from(seconds),
    ]))
}

pub(crate) const PING: Function = Function {
    name: "test.ping",
    doc: "Says that the minion is up. It sends no network ping; it only gives True.",
    signature: Signature {
        function: "ping",
        parameters: &[],
        more: false,
        keywords: false,
    },
    body: |_| std::future::ready(Ok(FunctionResult::ok(true))).boxed(),
    quick: true,
    out: None,
};

pub(crate) const RETCODE: Function = Function {
    name: "test.retcode",
    doc: "Gives True with this return code, 42 when none is given.",
    signature: Signature {
        function: "retcode",
        parameters: &[Parameter::Optional("code")],
        more: false,
        keywords: false,
    },
    body: |call| {
        let code = call.arguments.get("code").map_or(Ok(42), python::int);
        let answer = code.map(|retcode| FunctionResult {
            value: Value::from(true),
            retcode,
        });
        std::future::ready(answer.map_err(Failure::from)).boxed()
    },
    quick: true,
    out: None,
};

pub(crate) const SLEEP: Function = Function {
    name: "test.sleep",
    doc: "Waits for this many seconds, then gives True.",
    signature: Signature {
        function: "sleep",
        parameters: &[Parameter::Required("length")],
        more: false,
        keywords: false,
    },
    body: |call| {
        let length = python::int(call.arguments.get("length").unwrap_or(&Value::Nil));
        async move {
            let seconds = u64::try_from(length?)
                .map_err(|_| Failure::Exception("sleep length must be non-negative".to_owned()))?;
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            Ok(FunctionResult::ok(true))
        }
        .boxed()
    },
    quick: false,
    out: None,
};

pub(crate) const VERSION: Function = Function {
    name: "test.version",
    doc: "The version of this minion, which is Saltern's and not Salt's.",
    signature: Signature {
        function: "version",
        parameters: &[],
        more: false,
        keywords: false,
    },
    body: |_| std::future::ready(Ok(FunctionResult::ok(super::grains::version()))).boxed(),
    quick: true,
    out: None,
};
