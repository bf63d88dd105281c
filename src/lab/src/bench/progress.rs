//! Says which phase begins and what it came to: for people, or with `--json` one line a message
//! for the program that started this, which looks at the master's processes meanwhile.

use std::cell::Cell;
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use saltern_minion::swarm::LoadReport;

use crate::terminal::say;

/// Sink of the figures.
pub(crate) struct Progress {
    json: bool,
    /// The processor time of this process when the phase began, in seconds.
    began_at: Cell<f64>,
}

impl Progress {
    pub(crate) const fn new(json: bool) -> Self {
        let began_at = Cell::new(0.0);
        Self { json, began_at }
    }

    pub(crate) fn begin(&self, phase: &str) {
        self.began_at.set(processor_seconds());
        if self.json {
            say(&format!("{{\"begin\": \"{phase}\"}}\n"));
        }
    }

    /// Asks the parent process to kill the master and to start it again at once, and waits until it
    /// has been killed.
    pub(crate) fn wait_for_restart(&self) -> std::io::Result<()> {
        say(match self.json {
            true => "{\"restart\": true}\n",
            false => "kill the master, start it again, and press Enter at the same time\n",
        });
        std::io::stdin().lines().next().transpose().map(|_| ())
    }

    /// A figure over time, for programs: pairs of seconds and that figure.
    pub(crate) fn curve(&self, phase: &str, points: &[(f64, usize)]) {
        if self.json {
            let points: Vec<String> = points
                .iter()
                .map(|(seconds, figure)| format!("[{seconds:.2}, {figure}]"))
                .collect();
            let points = points.join(", ");
            say(&format!(
                "{{\"curve\": \"{phase}\", \"points\": [{points}]}}\n"
            ));
        }
    }

    pub(crate) fn end_load(&self, phase: &str, report: &LoadReport) {
        self.end(
            phase,
            &[
                ("done", report.done as f64),
                ("failed", report.failed as f64),
                ("seconds", report.elapsed.as_secs_f64()),
                ("per_second", report.per_second),
                ("p50_ms", millis(report.p50)),
                ("p99_ms", millis(report.p99)),
            ],
        );
    }

    /// The figures, and the seconds of processor time that this process itself took.
    pub(crate) fn end(&self, phase: &str, figures: &[(&str, f64)]) {
        let own = (
            "load_cpu_seconds",
            processor_seconds() - self.began_at.get(),
        );
        say(&line(phase, figures.iter().chain([&own]), self.json));
    }
}

fn line<'a>(phase: &str, figures: impl Iterator<Item = &'a (&'a str, f64)>, json: bool) -> String {
    let (separator, quote) = if json { (", ", "\"") } else { ("  ", "") };
    let shown: Vec<String> = figures
        .map(|(name, figure)| format!("{quote}{name}{quote}: {figure:.3}"))
        .collect();
    let shown = shown.join(separator);
    if json {
        format!("{{\"end\": \"{phase}\", {shown}}}\n")
    } else {
        format!("{phase:>22}  {shown}\n")
    }
}

pub(crate) const fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// Processor time of all threads of this process so far, in seconds.
fn processor_seconds() -> f64 {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else {
        return 0.0;
    };
    let times = [usage.user_time(), usage.system_time()];
    let seconds = times.map(|time| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6);
    seconds.iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phase_is_one_line_as_text_and_as_json() {
        let figures = [("done", 2.0), ("p50_ms", 0.12345)];
        assert_eq!(
            line("auth", figures.iter(), true),
            "{\"end\": \"auth\", \"done\": 2.000, \"p50_ms\": 0.123}\n"
        );
        let shown = line("auth", figures.iter(), false);
        assert_eq!(shown.trim(), "auth  done: 2.000  p50_ms: 0.123");
    }
}
