//! Texts of stock's command line that stand beside returns.

use saltern_wire::msgpack::Value;

/// Text in place of the return of a minion that is known but has no connection to the master.
pub const NOT_CONNECTED: &str = "Minion did not return. [Not connected]";

/// Text in place of the return of a minion that did not answer (stock: `salt/client/__init__.py`).
#[must_use]
pub fn no_response(jid: &str) -> String {
    format!(
        "Minion did not return. [No response]\nThe minions may not have all finished running \
         and any remaining minions will return upon completion. To look up the return data for \
         this job later, run the following command:\n\nsalt-run jobs.lookup_jid {jid}"
    )
}

/// The line that stock prints when a target matches nobody.
pub const NO_MINIONS_MATCHED: &str =
    "No minions matched the target. No command was sent, no jid was assigned.";

/// The heading of `salt -v`: the jid, a rule as long as that line, and an empty line.
#[must_use]
pub fn verbose_heading(jid: &str) -> String {
    let line = format!("Executing job with jid {jid}");
    let rule = "-".repeat(line.chars().count());
    format!("{line}\n{rule}\n")
}

/// The heading of a batch's part: the minions that run it, sorted, between empty lines.
#[must_use]
pub fn batch_part(mut minions: Vec<String>) -> String {
    minions.sort_unstable();
    let minions = Value::Array(minions.into_iter().map(Value::from).collect());
    format!("\nExecuting run on {}\n", saltern_python::str(&minions))
}
