//! Store of the jobs in memory: all open ones, and the last ones that ended, because a late return
//! amends them. Bounded by the sum of their minions.

use std::collections::{BTreeMap, HashMap};

use saltern_model::Jid;
use saltern_store::jobs::JobState;

use super::job::Job;

/// Jobs by jid, bounded by weight.
pub(super) struct Jobs {
    jobs: HashMap<Jid, Numbered>,
    /// Counts how often a job was opened or ended.
    last_number: u64,
    open: Row,
    ended: Row,
}

struct Numbered {
    number: u64,
    job: Job,
}

/// Jobs in the order in which they came here.
struct Row {
    jids: BTreeMap<u64, Jid>,
    weight: usize,
    most: usize,
}

impl Row {
    fn new(most: usize) -> Self {
        Self {
            jids: BTreeMap::new(),
            weight: 0,
            most,
        }
    }

    fn add(&mut self, jid: &Jid, numbered: &Numbered) {
        self.jids.insert(numbered.number, jid.clone());
        self.weight += numbered.job.weight();
    }

    fn remove(&mut self, numbered: &Numbered) {
        self.jids.remove(&numbered.number);
        self.weight -= numbered.job.weight();
    }
}

impl Jobs {
    /// The weight of a job is the number of its minions, plus one.
    pub(super) fn new(most_open: usize, most_ended: usize) -> Self {
        Self {
            jobs: HashMap::new(),
            last_number: 0,
            open: Row::new(most_open),
            ended: Row::new(most_ended),
        }
    }

    pub(super) fn get(&self, jid: &Jid) -> Option<&Job> {
        self.jobs.get(jid).map(|numbered| &numbered.job)
    }

    /// For changes that neither end the job nor give it more minions.
    pub(super) fn get_mut(&mut self, jid: &Jid) -> Option<&mut Job> {
        self.jobs.get_mut(jid).map(|numbered| &mut numbered.job)
    }

    pub(super) fn open_count(&self) -> usize {
        self.open.jids.len()
    }

    /// The open jobs in the order of their opening.
    pub(super) fn open(&self) -> impl DoubleEndedIterator<Item = (&Jid, &Job)> {
        let jids = self.open.jids.values();
        jids.filter_map(|jid| Some((jid, self.get(jid)?)))
    }

    /// Adds an open job, or opens and changes the one that is there.
    pub(super) fn put(
        &mut self,
        jid: &Jid,
        new: impl FnOnce() -> Job,
        change: impl FnOnce(&mut Job),
    ) {
        if self.jobs.contains_key(jid) {
            self.grow(jid, change);
            return;
        }
        let number = self.next_number();
        self.insert(jid, Numbered { number, job: new() }, change);
    }

    /// Opens and changes a job that is there.
    pub(super) fn grow(&mut self, jid: &Jid, change: impl FnOnce(&mut Job)) {
        let Some(mut known) = self.jobs.remove(jid) else {
            return;
        };
        if known.job.is_open() {
            self.open.remove(&known);
        } else {
            self.ended.remove(&known);
            known.number = self.next_number();
        }
        self.insert(jid, known, change);
    }

    fn insert(&mut self, jid: &Jid, mut numbered: Numbered, change: impl FnOnce(&mut Job)) {
        change(&mut numbered.job);
        numbered.job.state = JobState::Open;
        self.open.add(jid, &numbered);
        self.jobs.insert(jid.clone(), numbered);
    }

    /// Ends an open job, or corrects the state of an ended one.
    pub(super) fn end(&mut self, jid: &Jid, state: JobState) {
        let number = self.next_number();
        let Some(known) = self.jobs.get_mut(jid) else {
            return;
        };
        if known.job.is_open() {
            self.open.remove(known);
            known.number = number;
            known.job.state = state;
            self.ended.add(jid, known);
        } else {
            known.job.state = state;
        }
        self.evict_ended();
    }

    /// Changes a job that has ended, which stays so and is the youngest.
    pub(super) fn grow_ended(&mut self, jid: &Jid, change: impl FnOnce(&mut Job)) {
        let number = self.next_number();
        let Some(known) = self.jobs.get_mut(jid).filter(|known| !known.job.is_open()) else {
            return;
        };
        self.ended.remove(known);
        change(&mut known.job);
        known.number = number;
        self.ended.add(jid, known);
        self.evict_ended();
    }

    /// Forgets a job that has ended.
    pub(super) fn forget_ended(&mut self, jid: &Jid) {
        if self.get(jid).is_some_and(|job| !job.is_open())
            && let Some(forgotten) = self.jobs.remove(jid)
        {
            self.ended.remove(&forgotten);
        }
    }

    /// Evicts the oldest ended jobs while the bound is exceeded. The youngest stays, however heavy it is: its
    /// next return would find it no more.
    fn evict_ended(&mut self) {
        while self.ended.weight > self.ended.most
            && self.ended.jids.len() > 1
            && let Some((_, oldest)) = self.ended.jids.first_key_value()
            && let Some(forgotten) = self.jobs.remove(&oldest.clone())
        {
            self.ended.remove(&forgotten);
        }
    }

    /// The weight by which minions below syndics may make open jobs heavier. They get half of the
    /// bound, so that reports of syndics end no unrelated job.
    pub(super) fn room_for_leaves(&self) -> usize {
        (self.open.most / 2).saturating_sub(self.open.weight)
    }

    /// The oldest open jobs, as many as must end to keep within the bound.
    pub(super) fn too_many(&self) -> Vec<Jid> {
        let mut excess = self.open.weight.saturating_sub(self.open.most);
        let mut oldest = Vec::new();
        for (jid, job) in self.open() {
            if excess == 0 {
                break;
            }
            excess = excess.saturating_sub(job.weight());
            oldest.push(jid.clone());
        }
        oldest
    }

    fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    #[cfg(test)]
    pub(super) fn ended_count(&self) -> usize {
        self.ended.jids.len()
    }

    #[cfg(test)]
    pub(super) fn weights(&self) -> (usize, usize) {
        (self.open.weight, self.ended.weight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::job_tracker::moment::Moment;
    use saltern_model::MinionId;

    fn jid(number: u32) -> Jid {
        Jid::parse(&format!("{number:020}")).unwrap()
    }

    fn put(jobs: &mut Jobs, number: u32, minions: &[&str]) {
        let minions = minions.iter().map(|id| MinionId::parse(id).unwrap());
        let new = || Job::new("test.ping".into(), 0, Moment::default());
        jobs.put(&jid(number), new, |job| job.expect(minions.collect()));
    }

    #[test]
    fn youngest_ended_job_is_remembered_whatever_its_weight() {
        let mut jobs = Jobs::new(10, 2);
        for number in 0..2 {
            put(&mut jobs, number, &["a", "b", "c"]);
            jobs.end(&jid(number), JobState::Expired);
            assert_eq!((jobs.weights(), jobs.jobs.len()), ((0, 4), 1));
        }
        jobs.grow_ended(&jid(1), |job| {
            job.expect(vec![MinionId::parse("d").unwrap()]);
        });
        assert_eq!(jobs.weights(), (0, 5));
        jobs.forget_ended(&jid(1));
        assert_eq!((jobs.weights(), jobs.jobs.len()), ((0, 0), 0));
    }

    #[test]
    fn memory_is_bounded_and_the_oldest_job_is_evicted() {
        let mut jobs = Jobs::new(10, 6);
        for number in 0..3 {
            put(&mut jobs, number, &["a", "b"]);
        }
        assert_eq!((jobs.weights(), jobs.too_many()), ((9, 0), Vec::new()));
        put(&mut jobs, 1, &["b", "c"]);
        put(&mut jobs, 3, &["a"]);
        assert_eq!((jobs.weights().0, jobs.too_many()), (12, vec![jid(0)]));
        jobs.end(&jid(0), JobState::Expired);
        assert_eq!(jobs.weights(), (9, 3));
        // Opened again, it is the youngest.
        put(&mut jobs, 0, &[]);
        assert_eq!(jobs.weights(), (12, 0));
        let order: Vec<Jid> = jobs.open().map(|(jid, _)| jid.clone()).collect();
        assert_eq!(order, [1, 2, 3, 0].map(jid));
        for number in [2, 3, 0] {
            jobs.end(&jid(number), JobState::Complete);
        }
        // Of those that ended only the youngest are remembered.
        assert!(jobs.get(&jid(2)).is_none() && jobs.get(&jid(0)).is_some());
        assert_eq!((jobs.weights(), jobs.open_count()), ((4, 5), 1));
        for number in 10..10_000 {
            put(&mut jobs, number, &["a"]);
            jobs.end(&jid(number), JobState::Complete);
        }
        assert_eq!(jobs.weights(), (4, 6));
        assert_eq!((jobs.jobs.len(), jobs.ended.jids.len()), (4, 3));
    }
}
