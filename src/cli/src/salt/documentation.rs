//! `-d`: the documentation that minions have of their functions, each function once.

use std::collections::BTreeMap;

use saltern_client::{ClientError, PublishRequest};
use saltern_output::NO_MINIONS_MATCHED;
use saltern_wire::msgpack::Value;

use super::follow::{Answer, End, Heading};
use super::{NO_RETURN, SaltTool};
use crate::console::{complain, say};
use crate::options::Ending;

impl SaltTool<'_> {
    /// Collects the documentation and prints it, sorted by function.
    pub(super) async fn documentation(&mut self, request: &PublishRequest) -> Result<u8, Ending> {
        let mut documented = BTreeMap::new();
        let mut has_answers = false;
        let heading = match self.command.options.show_jid {
            Some(true) => Heading::Jid,
            _ => Heading::None,
        };
        let mut collect = |answer: Answer| {
            has_answers = true;
            let functions = answer.value.as_map().filter(|_| !answer.is_silent);
            for (name, text) in functions.unwrap_or_default() {
                if let (Some(name), Some(text)) = (name.as_str(), text.as_str())
                    && !text.is_empty()
                    && !documented.contains_key(name)
                {
                    documented.insert(name.to_owned(), text.to_owned());
                }
            }
            Ok(())
        };
        match self.follow(request, heading, &mut collect).await {
            Ok(End::Over(_)) if has_answers => {}
            Ok(End::Left(code)) => return Ok(code),
            Ok(end) => {
                if matches!(end, End::NoMinions) {
                    say(&format!("{NO_MINIONS_MATCHED}\n"));
                }
                complain("No minions found to gather docs from");
                return Ok(NO_RETURN);
            }
            Err(error) => return self.undocumented(&error),
        }
        for (name, text) in documented {
            if self.console.has_outputter() {
                let one = Value::Map(vec![(name.into(), text.into())]);
                self.written(self.console.display(&one, Some("nested")))?;
            } else {
                say(&format!("{name}:\n{text}\n\n"));
            }
        }
        Ok(0)
    }

    /// Stock prints the sentence on standard error here, and ends with another code than elsewhere.
    fn undocumented(&self, error: &ClientError) -> Result<u8, Ending> {
        complain(&super::refusal::sentence(error));
        self.advise(error);
        Ok(NO_RETURN)
    }
}
