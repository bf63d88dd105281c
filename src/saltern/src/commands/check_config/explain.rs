//! `saltern check-config --explain OPTION`: what there is to know of an option, from the tables by
//! which the check decides.

use saltern_base::exit::Exit;
use saltern_config::options::{self, OurOption, Status, StockOption};
use saltern_config::{Reload, reload_of};
use saltern_model::Compat;

use super::super::{complain, say};

/// 0 when every name is that of an option; 64 when one is not.
pub(super) fn run(names: &[String]) -> Exit {
    let mut exit = Exit::Ok;
    for name in names {
        match describe(name) {
            Some(text) => say(&text),
            None => {
                let nearest = options::nearest(name);
                let nearest = nearest.map(|name| format!("; did you mean \"{name}\"?"));
                complain(&format!(
                    "there is no option \"{name}\"{}",
                    nearest.unwrap_or_default()
                ));
                exit = Exit::Usage;
            }
        }
    }
    exit
}

/// What there is to say of an option; `None` for a name that is none.
fn describe(name: &str) -> Option<String> {
    let about = match (options::ours(name), options::stock(name)) {
        (Some(option), _) => of_ours(option),
        (None, Some(option)) => of_stock(option),
        (None, None) => return None,
    };
    let reload = match reload_of(name) {
        Reload::InEffect => "at once, when the configuration is read again (SIGHUP)",
        Reload::NeedsRestart => "after a restart",
        Reload::NoEffect => "never",
    };
    Some(format!("{name}\n{about}  in effect: {reload}\n"))
}

fn of_ours(option: &OurOption) -> String {
    format!(
        "  {}\n  status: honoured; an option of this program, stock passes over it\n  default: {}\n",
        option.doc, option.default
    )
}

fn of_stock(option: &StockOption) -> String {
    let (status, meaning) = match options::status(option.name) {
        Some(Status::Honoured) => ("honoured", "it means what it means in Salt".to_owned()),
        Some(Status::NotBuilt(part)) => (
            "not honoured yet",
            format!("it is for a part that is not built: {}", part.part()),
        ),
        Some(Status::Refused(why)) => (
            "refused",
            format!("the master starts with the default only: {why}"),
        ),
        Some(Status::NoEffect(why)) => ("no effect", why.to_owned()),
        Some(Status::InPython) => (
            "handed on",
            "it is for a module that runs in Python (python_bridge)".to_owned(),
        ),
        None => ("unknown", "nobody has decided on it".to_owned()),
    };
    let lines: Vec<String> = Compat::ALL
        .iter()
        .filter(|line| option.is_known_to(**line))
        .map(ToString::to_string)
        .collect();
    let kinds: Vec<&str> = option.types.iter().map(|kind| kind.name()).collect();
    let kinds = match kinds.is_empty() {
        true => "anything".to_owned(),
        false => kinds.join(" or "),
    };
    format!(
        "  status: {status}; {meaning}\n  value: {kinds}\n  default: {}\n  Salt: {}\n",
        defaults(option),
        lines.join(", ")
    )
}

/// The default, or those of each line where they are not the same.
fn defaults(option: &StockOption) -> String {
    let of_lines: Vec<(String, &str)> = Compat::ALL
        .iter()
        .filter_map(|line| Some((line.to_string(), option.default(*line)?)))
        .collect();
    let Some((_, first)) = of_lines.first() else {
        return "none".to_owned();
    };
    if of_lines.iter().all(|(_, default)| default == first) {
        return (*first).to_owned();
    }
    let of_lines = of_lines.iter();
    let of_lines: Vec<String> = of_lines
        .map(|(line, default)| format!("{default} in {line}"))
        .collect();
    of_lines.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_is_explained() {
        let stock = options::all().iter().map(|option| option.name);
        for name in stock.chain(options::OURS.iter().map(|option| option.name)) {
            let text = describe(name).unwrap();
            for part in ["status: ", "default: ", "in effect: "] {
                assert!(text.contains(part), "{name}: {text}");
            }
            assert!(!text.contains("status: unknown"), "{name}");
        }
        assert_eq!(describe("no_such_option"), None);
        assert!(describe("gitfs_provider").unwrap().contains("no effect"));
        assert!(describe("cluster_id").unwrap().contains("refused"));
        assert!(describe("keep_jobs_seconds").unwrap().contains("86400"));
    }
}
