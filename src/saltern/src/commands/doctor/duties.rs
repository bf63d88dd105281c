//! Whether the running master does what it has to do every now and then, and in time.

use super::super::duty::Told;
use super::{Complaint, Patient};

/// A round may wait for what is more urgent: seconds.
const GRACE: i64 = 60;

/// And may be left out, when its actor is busy: so many rounds.
const ROUNDS: i64 = 3;

pub(super) fn check(patient: &Patient) -> Vec<Complaint> {
    let running = patient.running.iter();
    let duties = running.flat_map(|running| &running.duties);
    duties
        .filter_map(|duty| complaint(duty, patient.now))
        .collect()
}

fn complaint(duty: &Told, now: i64) -> Option<Complaint> {
    let name = &duty.name;
    if !duty.is_ok() {
        let what = format!("\"{name}\" failed when it was last done: {}", duty.result);
        let advice = format!("put that in order; then: saltern duty run {name}");
        return Some(Complaint::new(what, advice));
    }
    let late = now.saturating_sub(duty.began?);
    let patience = duty.every.saturating_mul(ROUNDS).saturating_add(GRACE);
    (late > patience).then(|| {
        let every = duty.every;
        let what = format!("\"{name}\" was last done {late} s ago, and should be every {every} s");
        Complaint::new(what, "look for what holds the master up: saltern metrics")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_late_or_failed_is_told() {
        let told = |line: &str| {
            let duty = Told::parse(line).unwrap();
            complaint(&duty, 1_000).map(|complaint| complaint.what)
        };
        assert_eq!(told("tokens\t60\t800\t0.1\t5\t0\tok"), None);
        assert_eq!(told("tokens\t60\tnever\t0.0\t0\t0\tok"), None);
        assert!(told("tokens\t60\t700\t0.1\t5\t0\tok").is_some_and(|it| it.contains("300 s ago")));
        assert!(
            told("tokens\t60\t990\t0.1\t5\t1\tno disk").is_some_and(|it| it.contains("no disk"))
        );
    }
}
