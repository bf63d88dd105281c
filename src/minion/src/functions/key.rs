//! `key.*`: which key of the master this minion trusts.

use futures_util::FutureExt;
use saltern_crypto::HashType;

use super::arguments::{Parameter, Signature};
use super::{Call, Failure, Function, FunctionResult};

pub(crate) const FINGER_MASTER: Function = Function {
    name: "key.finger_master",
    doc: "The fingerprint of the master's public key that this minion trusts.",
    signature: Signature {
        function: "finger_master",
        parameters: &[Parameter::Optional("hash_type")],
        more: false,
        keywords: false,
    },
    body: |call| std::future::ready(finger_master(&call).map(FunctionResult::ok)).boxed(),
    quick: true,
    out: None,
};

fn finger_master(call: &Call) -> Result<String, Failure> {
    let named = call.arguments.get("hash_type");
    let named = named.and_then(|name| name.as_str());
    let name = named.unwrap_or("sha256");
    let hash = HashType::from_name(name)
        .ok_or_else(|| Failure::Exception(format!("unsupported hash type {name}")))?;
    let failed = |error: &dyn std::error::Error| Failure::Execution(error.to_string());
    let key = call.context.master_key.load();
    let key = key.map_err(|error| failed(&error))?;
    // As stock, before the first contact.
    let Some(key) = key else {
        return Ok(String::new());
    };
    key.fingerprint(hash).map_err(|error| failed(&error))
}
