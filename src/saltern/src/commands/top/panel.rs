//! Panel over a list, as lines: a job with its missing minions and its events, one event with its
//! data, or the help.

use super::state::State;
use super::table::time_of_day;
use super::view::Panel;

/// A title and the lines below it.
pub(super) struct Text {
    pub(super) title: String,
    pub(super) lines: Vec<String>,
}

/// Events of a job that are shown below it, and characters of their data.
const EVENTS: usize = 50;
const MAX_DATA_LENGTH: usize = 200;

const HELP: &str = "\
1-5, Tab, ← →   the view: jobs, minions, workers, queues, events
↑ ↓ PgUp PgDn   choose a row; it stays chosen while others come and go
End, Home       the last row; the first one, whichever it is
Enter           a job: where it stands, who is missing and why, its events
                a minion: the events that name it
                an event: its data
/               show only what holds every word: in jobs the jid, function, target,
                user and state; in minions the id and standing; in events the tag
Esc             close what is open, or clear the filter
k               end a job: asks first, then sends saltutil.term_job (t) or kill_job (K)
                to its minions that have not returned
p               hold the events, or let them go on
Ctrl-L          draw the screen anew
q, Ctrl-C       quit

LOST of a job: minions that are unreachable, or that did not say what became of it.
BUSY of an actor: the share of its time; of a command: that of one worker.
LOST of a queue: what found no room since the master started.";

/// The text of a panel on a screen of this width in characters.
pub(super) fn of(panel: &Panel, state: &State, width: usize) -> Text {
    match panel {
        Panel::Help => Text {
            title: " Keys ".to_owned(),
            lines: HELP.lines().map(str::to_owned).collect(),
        },
        Panel::Job(jid) => {
            let explained = state.explained.as_ref();
            let known = explained.filter(|(known, _)| known == jid);
            let asking = || vec!["asking …".to_owned()];
            let mut lines = known.map_or_else(asking, |(_, lines)| lines.clone());
            lines.extend(events_of(jid.as_str(), state));
            Text {
                title: format!(" Job {jid} "),
                lines,
            }
        }
        Panel::Event(number) => match state.events.get(*number) {
            Some(event) => Text {
                title: format!(" {} ", event.tag),
                lines: broken(&event.lines(), width),
            },
            None => Text {
                title: " Event ".to_owned(),
                lines: vec!["it has left the ring of the latest events".to_owned()],
            },
        },
    }
}

/// The lines, those that are too long broken into several.
fn broken(lines: &[String], width: usize) -> Vec<String> {
    let mut out = Vec::with_capacity(lines.len());
    for line in lines {
        let mut rest = line.as_str();
        while let Some((end, _)) = rest.char_indices().nth(width.max(1)) {
            let (part, left) = rest.split_at(end);
            out.push(part.to_owned());
            rest = left;
        }
        out.push(rest.to_owned());
    }
    out
}

/// The latest events of a job, newest first, with a title.
fn events_of(jid: &str, state: &State) -> Vec<String> {
    let events = state.events.newest_first();
    let events = events.filter(|event| event.tag.contains(jid)).take(EVENTS);
    let mut lines: Vec<String> = events
        .map(|event| {
            let data = event.line(MAX_DATA_LENGTH);
            format!("  {}  {}  {data}", time_of_day(event.at), event.tag)
        })
        .collect();
    if !lines.is_empty() {
        lines.insert(0, "latest events:".to_owned());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_broken_and_nothing_of_them_is_lost() {
        let lines = ["äbcdefg".to_owned(), String::new(), "abc".to_owned()];
        assert_eq!(broken(&lines, 3), ["äbc", "def", "g", "", "abc"]);
        assert_eq!(broken(&["ab".to_owned()], 0), ["a", "b"]);
    }
}
