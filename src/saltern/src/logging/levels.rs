//! Log levels of the console, of the file and of single targets (modules). They can be changed at
//! run time, by `saltern log-level` and by a reload of the configuration.

use parking_lot::RwLock;
use saltern_actors::control::{LogLevelError, LogLevels};
use saltern_config::{LevelOptions, LogLevel, is_place};
use saltern_model::control::CurrentLevels;
use tracing::Metadata;
use tracing_subscriber::filter::LevelFilter;

/// The levels of a master's log.
pub(crate) struct Levels {
    /// The level that was given as an argument, which counts more than the configuration's.
    argument: Option<LogLevel>,
    /// Whether a log file is open, which only a start of the master changes.
    has_file: bool,
    state: RwLock<State>,
}

struct State {
    /// Levels of the configuration.
    configured: Wanted,
    /// Current levels.
    current: Wanted,
}

#[derive(Clone, PartialEq, Eq)]
struct Wanted {
    console: LogLevel,
    file: LogLevel,
    /// Places with a level of their own, on the console and in the file; the longest name first.
    places: Vec<(String, LogLevel)>,
}

/// Maximum number of targets with a level of their own: each is compared for every line.
const MAX_PLACES: usize = 64;

impl Wanted {
    fn of(options: &LevelOptions, argument: Option<LogLevel>) -> Self {
        let mut wanted = Self {
            console: argument.unwrap_or(options.level),
            file: options.file_level,
            places: options.granular_levels.clone(),
        };
        wanted.sort();
        wanted
    }

    fn sort(&mut self) {
        self.places
            .sort_by_key(|(place, _)| std::cmp::Reverse(place.len()));
    }

    /// The level of the place that a line comes from, if it has one of its own.
    fn own(&self, target: &str) -> Option<LogLevel> {
        let mut places = self.places.iter();
        let found = places.find(|(place, _)| covers(place, target));
        found.map(|(_, level)| *level)
    }

    fn most(&self) -> LevelFilter {
        let places = self.places.iter().map(|(_, level)| filter(*level));
        let both = filter(self.console).max(filter(self.file));
        places.fold(both, LevelFilter::max)
    }
}

/// Whether a place has another in it, as a crate has its modules; the name of the program stands
/// for all of its crates.
fn covers(place: &str, target: &str) -> bool {
    let rest = target.strip_prefix(place);
    let is_end = |rest: &str| rest.is_empty() || rest.starts_with("::");
    rest.is_some_and(|rest| is_end(rest) || place == "saltern")
}

/// Sinks that take a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LogSinks {
    pub(super) console: bool,
    pub(super) file: bool,
}

impl Levels {
    pub(super) fn new(options: &LevelOptions, argument: Option<LogLevel>) -> Self {
        let configured = Wanted::of(options, argument);
        Self {
            argument,
            has_file: options.file_level != LogLevel::Quiet,
            state: RwLock::new(State {
                current: configured.clone(),
                configured,
            }),
        }
    }

    /// Takes over the levels of the configuration; changes made at run time are reset.
    pub(crate) fn follow(&self, options: &LevelOptions) {
        let configured = Wanted::of(options, self.argument);
        *self.state.write() = State {
            current: configured.clone(),
            configured,
        };
        tracing::callsite::rebuild_interest_cache();
    }

    /// Whether the level was given as an argument, so that `log_level` does not count.
    pub(crate) fn is_fixed(&self) -> bool {
        self.argument.is_some()
    }

    pub(super) fn takers(&self, metadata: &Metadata<'_>) -> LogSinks {
        let state = self.state.read();
        let own = state.current.own(metadata.target());
        let wants = |level: LogLevel| filter(own.unwrap_or(level)) >= *metadata.level();
        LogSinks {
            console: wants(state.current.console),
            file: wants(state.current.file),
        }
    }

    pub(super) fn most(&self) -> LevelFilter {
        self.state.read().current.most()
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let changed = change(&mut self.state.write());
        tracing::callsite::rebuild_interest_cache();
        changed
    }
}

impl LogLevels for Levels {
    fn current(&self) -> CurrentLevels {
        let state = self.state.read();
        let Wanted {
            console,
            file,
            places,
        } = &state.current;
        let targets = places.iter();
        CurrentLevels {
            console: console.to_string(),
            file: self.has_file.then(|| file.to_string()),
            targets: targets
                .map(|(place, level)| (place.clone(), level.to_string()))
                .collect(),
        }
    }

    fn set(&self, level: LogLevel, place: Option<&str>) -> Result<(), LogLevelError> {
        self.change(|state| {
            let Some(place) = place else {
                state.current.console = level;
                state.current.file = level;
                return Ok(());
            };
            let place = place.replace('.', "::");
            if !is_place(&place) {
                return Err(LogLevelError::UnknownPlace(place));
            }
            let places = &mut state.current.places;
            places.retain(|(known, _)| *known != place);
            if places.len() >= MAX_PLACES {
                return Err(LogLevelError::TooManyPlaces(MAX_PLACES));
            }
            places.push((place, level));
            state.current.sort();
            Ok(())
        })
    }

    fn reset(&self) {
        self.change(|state| state.current = state.configured.clone());
    }
}

/// Salt's levels; `profile` is as fine as `debug`, `garbage` and `all` as `trace`.
fn filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Quiet => LevelFilter::OFF,
        LogLevel::Critical | LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warning => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Profile | LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace | LogLevel::Garbage | LogLevel::All => LevelFilter::TRACE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> LevelOptions {
        LevelOptions {
            level: LogLevel::Warning,
            file_level: LogLevel::Quiet,
            granular_levels: vec![
                ("saltern".to_owned(), LogLevel::Error),
                ("saltern_actors::bus".to_owned(), LogLevel::Debug),
            ],
        }
    }

    #[test]
    fn longest_matching_target_wins() {
        let wanted = Wanted::of(&options(), None);
        assert_eq!(wanted.own("saltern_actors::bus"), Some(LogLevel::Debug));
        assert_eq!(
            wanted.own("saltern_actors::publisher"),
            Some(LogLevel::Error)
        );
        let similar = wanted.own("saltern_actors::bus_of_another");
        assert_eq!(
            similar,
            Some(LogLevel::Error),
            "the place ends with its name"
        );
        assert_eq!(wanted.own("saltern_actors::bus::x"), Some(LogLevel::Debug));
        assert_eq!(wanted.own("actix"), None);
        assert_eq!(wanted.most(), LevelFilter::DEBUG);
    }

    #[test]
    fn levels_are_listed_and_reset() {
        let levels = Levels::new(&options(), Some(LogLevel::Info));
        let before = levels.current();
        let of = |level: &str, targets: &[(&str, &str)]| CurrentLevels {
            console: level.to_owned(),
            file: None,
            targets: targets
                .iter()
                .map(|(at, level)| ((*at).into(), (*level).into()))
                .collect(),
        };
        let configured = [("saltern_actors::bus", "debug"), ("saltern", "error")];
        assert_eq!(before, of("info", &configured));
        levels.set(LogLevel::Trace, None).unwrap();
        levels
            .set(LogLevel::Quiet, Some("saltern_actors.publisher"))
            .unwrap();
        let [bus, all] = configured;
        let set = [("saltern_actors::publisher", "quiet"), bus, all];
        assert_eq!(levels.current(), of("trace", &set));
        for nowhere in ["salt.loader", "saltern_actor.publisher", "salternx"] {
            levels.set(LogLevel::Info, Some(nowhere)).unwrap_err();
        }
        levels.reset();
        assert_eq!(levels.current(), before);
        levels.set(LogLevel::Trace, None).unwrap();
        levels.follow(&options());
        assert_eq!(levels.current(), before);
    }
}
