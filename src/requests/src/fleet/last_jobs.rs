//! The last jobs of an inventory's minions, each job named once.

use std::collections::HashMap;
use std::sync::Arc;

use saltern_model::MinionId;
use saltern_model::control::LastJobs;
use saltern_store::StoreError;
use saltern_store::jobs::LastReturn;

use crate::Services;

impl Services {
    /// The last job that each of these minions returned, in their order.
    ///
    /// # Errors
    /// The job database cannot be read.
    pub fn last_jobs_of<'a>(
        &self,
        minions: impl IntoIterator<Item = &'a MinionId>,
    ) -> Result<LastJobs, StoreError> {
        let last = self.jobs.last_returns.of(&*self.jobs.reader, minions)?;
        Ok(named_once(last))
    }
}

fn named_once(last: Vec<Option<LastReturn>>) -> LastJobs {
    let mut numbers: HashMap<(Arc<str>, Arc<str>), usize> = HashMap::new();
    let returns = last.into_iter().map(|one| {
        let one = one?;
        let next = numbers.len();
        let number = *numbers.entry((one.jid, one.fun)).or_insert(next);
        Some((number, one.received, one.retcode))
    });
    let returns = returns.collect();
    let mut jobs: Vec<_> = numbers.into_iter().collect();
    jobs.sort_unstable_by_key(|(_, number)| *number);
    let named = jobs
        .into_iter()
        .map(|((jid, fun), _)| (jid.to_string(), fun.to_string()));
    LastJobs {
        jobs: named.collect(),
        returns,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_job_of_an_inventory_is_named_once() {
        let last = |jid: &str, retcode| {
            Some(LastReturn {
                jid: jid.into(),
                fun: "test.ping".into(),
                received: 7,
                retcode,
            })
        };
        let named = named_once(vec![last("b", 0), None, last("a", 1), last("b", 2)]);
        let ping = |jid: &str| (jid.to_owned(), "test.ping".to_owned());
        assert_eq!(named.jobs, [ping("b"), ping("a")]);
        let expected = [Some((0, 7, 0)), None, Some((1, 7, 1)), Some((0, 7, 2))];
        assert_eq!(named.returns, expected);
    }
}
