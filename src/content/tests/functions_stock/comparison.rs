//! Templates held against what stock made of them, and against the list of those that may differ.

use std::fmt::Debug;

use saltern_wire::msgpack::Value;

/// Results of the templates so far.
#[derive(Default)]
pub(crate) struct Comparison {
    compared: usize,
    different: Vec<String>,
    agreed: Vec<String>,
}

impl Comparison {
    /// Adds a template whose row of stock's answers is `row`: it has to be the same, unless it is
    /// known to differ, and then it has to differ.
    pub(crate) fn add(
        &mut self,
        template: &str,
        row: &Value,
        ours: &impl Debug,
        (same, is_known): (bool, bool),
    ) {
        self.compared += 1;
        let text = |name: &str| row.get(name).and_then(Value::as_str);
        match (same, is_known) {
            (false, false) => self.different.push(format!(
                "{template}\n  stock: {:?} {}\n  ours:  {ours:?}",
                text("output").or(text("error")),
                text("message").unwrap_or_default()
            )),
            (true, true) => self.agreed.push(template.to_owned()),
            _ => {}
        }
    }

    /// Fails with everything that differs, or is listed and does not.
    pub(crate) fn finish(self) {
        let count = self.different.len();
        assert!(
            count == 0,
            "{count} of {} differ:\n{}",
            self.compared,
            self.different.join("\n")
        );
        let agreed = self.agreed;
        assert!(
            agreed.is_empty(),
            "listed as different, but the same: {agreed:?}"
        );
    }
}
