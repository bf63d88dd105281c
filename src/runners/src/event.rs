//! `event.send`: an event for the bus (`salt/runners/event.py`).

use saltern_model::Tag;
use saltern_wire::msgpack::Value;

use crate::call::{Bound, CallResult, Function, Parameter, RunnerError, function};
use crate::notices::Notices;
use crate::registry::RunnerContext;
use Parameter::{Needed, Optional};

/// The functions of the module.
pub(crate) const FUNCTIONS: &[Function] =
    &[function("send", &[Needed("tag"), Optional("data")], send)];

fn send(_: &RunnerContext, bound: &Bound<'_>, notices: &mut Notices<'_>) -> CallResult {
    let text = bound.text("tag")?.unwrap_or_default();
    let tag = Tag::parse(&text).map_err(|error| RunnerError::Refused(error.to_string()))?;
    let data = match bound.truthy("data") {
        None => Value::Map(Vec::new()),
        Some(data @ Value::Map(_)) => data.clone(),
        Some(_) => {
            let text = "\"data\" has to be a mapping";
            return Err(RunnerError::Refused(text.to_owned()));
        }
    };
    notices.fire(tag, data);
    Ok(true.into())
}

#[cfg(test)]
mod tests {
    use saltern_model::Compat;

    use super::*;
    use crate::Notice;
    use crate::testing::TestSite;

    #[test]
    fn send_fires_event_with_given_tag_and_data() {
        let site = TestSite::new(Compat::V3008, "");
        let data = Value::map([("foo", "bar")]);
        let (ran, notices) = site.runner("event.send", &["my/tag".into(), data.clone()], &[]);
        assert_eq!(ran.value, true.into());
        assert_eq!(
            notices,
            [Notice::Event(Tag::parse("my/tag").unwrap(), data)]
        );
        let (_, notices) = site.runner("event.send", &["my/tag".into()], &[]);
        let nothing = Value::Map(Vec::new());
        assert_eq!(
            notices,
            [Notice::Event(Tag::parse("my/tag").unwrap(), nothing)]
        );
    }

    #[test]
    fn send_with_bad_tag_or_data_is_refused() {
        let site = TestSite::new(Compat::V3008, "");
        for arguments in [
            vec!["a\nb".into()],
            vec!["".into()],
            vec!["a".into(), "text".into()],
        ] {
            let (ran, notices) = site.runner("event.send", &arguments, &[]);
            assert!(!ran.success && notices.is_empty(), "{arguments:?}");
        }
    }
}
