//! The tree of supervisors and children as data, and what restarts with a child that fails: nobody, or its whole
//! supervisor.
//!
//! Plain data under the lock of `tree.rs`. Charges budgets and hands out [`Rebuild`]s; starts,
//! stops and logs nothing.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::{sync::oneshot, time::Instant};

use crate::{
    Budget, Restart,
    line::{Command, Line, Rebuild},
    policy::Record,
};

/// The root's place in [`Family::supervisors`].
pub(crate) const ROOT: usize = 0;

pub(crate) struct Family {
    /// Never shrinks: supervisors live as long as the tree.
    pub(crate) supervisors: Vec<Node>,
    /// In the order of starting, without children that ended for good.
    pub(crate) children: BTreeMap<u64, ChildNode>,
    pub(crate) next_key: u64,
    /// The root has failed; only the first time counts.
    pub(crate) given_up: bool,
}

pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) record: Record,
    pub(crate) parent: Option<usize>,
    /// In the order of starting.
    pub(crate) members: Vec<Member>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Member {
    Child(u64),
    Supervisor(usize),
}

pub(crate) struct ChildNode {
    pub(crate) line: Arc<Line>,
    pub(crate) supervisor: usize,
    pub(crate) restart: Restart,
    pub(crate) record: Record,
    pub(crate) shutdown: Duration,
    pub(crate) may_block: bool,
}

/// The members to rebuild, and the back-off of the first of them.
pub(crate) struct Plan {
    pub(crate) scope: Member,
    pub(crate) supervisor: usize,
    pub(crate) delay: Duration,
}

impl Family {
    pub(crate) fn new(name: &str, budget: Budget) -> Self {
        Self {
            supervisors: vec![Node::new(name, budget, None)],
            children: BTreeMap::new(),
            next_key: 0,
            given_up: false,
        }
    }

    /// Charges the budgets from the child upwards until one allows the restart.
    pub(crate) fn plan(&mut self, key: u64, now: Instant) -> Option<Plan> {
        let child = self.children.get_mut(&key)?;
        let mut number = child.supervisor;
        let allowed = child.record.charge(now);
        if allowed && self.supervisors[number].record.charge(now) {
            let delay = child.record.back_off(now);
            return Some(Plan {
                scope: Member::Child(key),
                supervisor: number,
                delay,
            });
        }
        while let Some(parent) = self.supervisors[number].parent {
            if self.supervisors[parent].record.charge(now) {
                let delay = self.supervisors[number].record.back_off(now);
                self.clear(number);
                let scope = Member::Supervisor(number);
                return Some(Plan {
                    scope,
                    supervisor: parent,
                    delay,
                });
            }
            number = parent;
        }
        None
    }

    /// A restarted supervisor begins with a full budget, and so does everyone below it.
    fn clear(&mut self, number: usize) {
        self.supervisors[number].record.clear();
        for member in self.supervisors[number].members.clone() {
            match member {
                Member::Supervisor(below) => self.clear(below),
                Member::Child(key) => {
                    if let Some(child) = self.children.get_mut(&key) {
                        child.record.clear();
                    }
                }
            }
        }
    }

    /// Chains the group in the order of starting: each waits until the one before has started.
    /// Returns the part of `failed`; the others are sent theirs.
    pub(crate) fn rebuild(&self, failed: u64, plan: &Plan) -> Option<Rebuild> {
        let mut group = Vec::new();
        self.leaves(plan.scope, &mut group);
        let mut own = None;
        let mut gate = None;
        for (place, key) in group.iter().enumerate() {
            let (release, next) = oneshot::channel();
            let delay = if place == 0 {
                plan.delay
            } else {
                Duration::ZERO
            };
            let rebuild = Rebuild {
                delay,
                gate: gate.replace(next),
                release: Some(release),
            };
            if *key == failed {
                own = Some(rebuild);
            } else if let Some(child) = self.children.get(key) {
                child.line.command(Command::Rebuild(rebuild));
            }
        }
        own
    }

    fn leaves(&self, member: Member, into: &mut Vec<u64>) {
        match member {
            Member::Child(key) => into.push(key),
            Member::Supervisor(number) => {
                for below in &self.supervisors[number].members {
                    self.leaves(*below, into);
                }
            }
        }
    }
}

impl Node {
    pub(crate) fn new(name: &str, budget: Budget, parent: Option<usize>) -> Self {
        let record = Record::new(budget);
        Self {
            name: name.to_owned(),
            record,
            parent,
            members: Vec::new(),
        }
    }
}
