//! The lines at the top: which master this is, and its figures as a whole.

use saltern_base::clock::civil;
use saltern_cli::terminal::plain;

use super::numbers::Numbers;
use super::state::State;
use super::units::{amount, number, rate, share, span};

/// Characters of a label that is shown.
const MAX_LABEL_CHARS: usize = 40;

/// Four lines; `now` in microseconds since 1970.
pub(super) fn lines(state: &State, now: i64) -> [String; 4] {
    let clock = civil(now).strftime("%T UTC");
    let numbers = &state.numbers;
    if !state.has_master() {
        let why = state.numbers_away.as_deref().unwrap_or("it is asked");
        return [
            format!("saltern top   {clock}"),
            "no master answers; waiting for one".to_owned(),
            why.to_owned(),
            String::new(),
        ];
    }
    let label = |name| {
        let label = numbers.label("saltern_build_info", name);
        plain(label.unwrap_or("?"), MAX_LABEL_CHARS)
    };
    let started = numbers.get("process_start_time_seconds");
    let up = started.map_or(0, |started| now.saturating_sub((started * 1e6) as i64));
    let [jobs, load] = figures(numbers);
    [
        format!(
            "saltern top   master {} for Salt {}, up {}   {clock}",
            label("version"),
            label("salt_compat"),
            span(up.max(0))
        ),
        jobs,
        load,
        trouble(state),
    ]
}

/// The separator of figures that are not of one kind.
const GAP: &str = "   ";

/// Lines of at most `width` characters, broken between figures.
pub(super) fn wrapped(lines: &[String], width: usize) -> Vec<String> {
    let broken = lines.iter().flat_map(|line| {
        let groups = fill(line.split(GAP), GAP, width);
        let parts = groups
            .into_iter()
            .flat_map(|group| match group.chars().count() > width {
                true => fill(group.split_inclusive(", "), "", width),
                false => vec![group],
            });
        parts.collect::<Vec<_>>()
    });
    broken.collect()
}

/// The parts, as many in each line as have room.
fn fill<'a>(parts: impl Iterator<Item = &'a str>, gap: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for part in parts {
        let length = gap.chars().count() + part.trim_end().chars().count();
        match lines.last_mut() {
            Some(line) if line.chars().count() + length <= width => {
                line.push_str(gap);
                line.push_str(part);
            }
            _ => lines.push(part.to_owned()),
        }
    }
    lines
}

fn figures(numbers: &Numbers) -> [String; 2] {
    let standing =
        |word: &str| number(numbers.get(&format!("saltern_minions{{standing=\"{word}\"}}")));
    let keys = |word: &str| number(numbers.get(&format!("saltern_keys{{state=\"{word}\"}}")));
    let jobs = format!(
        "jobs {} open, {} a second done   minions {} connected, {} in doubt, {} away, {} not heard   \
         keys {} accepted, {} pending",
        number(numbers.get("saltern_jobs_open")),
        rate(numbers.rate_of_all("saltern_jobs_finished_total")),
        standing("connected"),
        standing("stale"),
        standing("away"),
        standing("known"),
        keys("accepted"),
        keys("pending"),
    );
    let load = format!(
        "a second: {} requests, {} returns, {} events   CPU {}   memory {}   files {} of {}   \
         room {}",
        rate(numbers.rate_of_all("saltern_requests_total")),
        rate(numbers.rate("saltern_returns_total")),
        rate(numbers.rate("saltern_bus_events_total")),
        share(numbers.rate("process_cpu_seconds_total")),
        amount(numbers.get("process_resident_memory_bytes")),
        number(numbers.get("process_open_fds")),
        number(numbers.get("process_max_fds")),
        amount(numbers.get("saltern_store_free_bytes")),
    );
    [jobs, load]
}

/// Problems of the master in one line; empty when there are none.
fn trouble(state: &State) -> String {
    let mut troubles = Vec::new();
    if let Some(why) = &state.bus_away {
        troubles.push(format!("no events: {why}"));
    }
    let failed = state.numbers.family("saltern_check_passed");
    let failed = failed.filter(|(_, passed)| *passed == 0.0);
    let failed: Vec<String> = failed
        .filter_map(|(labels, _)| labels.split('"').nth(1))
        .map(|check| plain(check, MAX_LABEL_CHARS))
        .collect();
    if !failed.is_empty() {
        troubles.push(format!("not in order: {}", failed.join(", ")));
    }
    let lost = state.events.lost();
    if lost > 0 {
        troubles.push(format!(
            "{lost} events were dropped: this program is too slow"
        ));
    }
    if state.minions_left_out > 0 {
        let listed = state.minions.len();
        troubles.push(format!(
            "{listed} of {} minions are listed, those that are away first",
            listed + state.minions_left_out
        ));
    }
    troubles.join("   ")
}

#[cfg(test)]
mod tests {
    use super::wrapped;

    #[test]
    fn narrow_lines_lose_no_figure() {
        let lines = ["jobs 2 open, 3 done   minions 3 connected, 4 away   keys 5".to_owned()];
        assert_eq!(wrapped(&lines, 110), lines);
        let expected = [
            "jobs 2 open, 3 done",
            "minions 3 connected, 4 away",
            "keys 5",
        ];
        assert_eq!(wrapped(&lines, 30), expected);
        let expected = [
            "jobs 2 open, 3 done",
            "minions 3 connected, ",
            "4 away",
            "keys 5",
        ];
        assert_eq!(wrapped(&lines, 21), expected);
        assert_eq!(wrapped(&[String::new()], 5), [""]);
    }
}
