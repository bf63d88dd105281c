//! `--summary`: how many minions were targeted, returned, did not, and failed.

use super::follow::Answer;

/// A rule of the block.
const RULE: &str = "-------------------------------------------";

/// The counts, with the names that `-v` adds.
#[derive(Default)]
pub(super) struct Summary {
    returned: usize,
    failed: Vec<String>,
    silent: usize,
    absent: Vec<String>,
    unresponsive: Vec<String>,
}

impl Summary {
    /// Counts an answer.
    pub(super) fn add(&mut self, answer: &Answer) {
        // A return that reads like the text for a silent minion counts as silence, as in stock.
        let text = answer.value.as_str().unwrap_or_default();
        if !text.starts_with("Minion did not return") {
            self.returned += 1;
            if answer.retcode != 0 {
                self.failed.push(answer.id.clone());
            }
            return;
        }
        self.silent += 1;
        if text.contains("Not connected") {
            self.absent.push(answer.id.clone());
        } else if text.contains("No response") {
            self.unresponsive.push(answer.id.clone());
        }
    }

    /// The block.
    pub(super) fn text(&self, is_verbose: bool) -> String {
        let (returned, silent) = (self.returned, self.silent);
        let mut text = format!(
            "\n\n{RULE}\nSummary\n{RULE}\n# of minions targeted: {}\n# of minions returned: {returned}\n\
             # of minions that did not return: {silent}\n# of minions with errors: {}\n",
            returned + silent,
            self.failed.len(),
        );
        let lists = [
            ("Minions not connected", &self.absent),
            ("Minions not responding", &self.unresponsive),
            ("Minions with failures", &self.failed),
        ];
        for (title, ids) in lists {
            if is_verbose && !ids.is_empty() {
                text.push_str(&format!("{title}: {}\n", ids.join(" ")));
            }
        }
        text.push_str(RULE);
        text.push('\n');
        text
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use saltern_wire::msgpack::Value;

    use super::*;

    #[test]
    fn summary_counts_as_stock_does() {
        let mut summary = Summary::default();
        for (id, value, retcode) in [
            ("a", Value::from(true), 0),
            ("b", Value::from("no"), 2),
            ("c", "Minion did not return. [Not connected]".into(), 1),
            ("d", "Minion did not return. [No response]\n…".into(), 1),
        ] {
            summary.add(&Answer {
                id: id.to_owned(),
                value,
                out: None,
                retcode,
                is_silent: false,
                elapsed: Duration::ZERO,
            });
        }
        let text = summary.text(true);
        for line in [
            "# of minions targeted: 4",
            "# of minions returned: 2",
            "# of minions that did not return: 2",
            "# of minions with errors: 1",
            "Minions not connected: c",
            "Minions not responding: d",
            "Minions with failures: b",
        ] {
            assert!(text.lines().any(|one| one == line), "{line}: {text}");
        }
        assert!(!summary.text(false).contains("Minions with failures"));
    }
}
