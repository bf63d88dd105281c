//! Returns that came before a master above had their job published here: its outbox goes back for them.

use super::*;

/// The master above of the name "one:4506".
fn upper(early: EarlyJobs) -> Upper {
    let master = saltern_config::UpperMaster {
        name: "one:4506".to_owned(),
        host: "one".to_owned(),
        port: 4506,
    };
    Upper::new(master, Vec::new(), early)
}

/// The outbox of the master above reads the return before the publication, and the one for all behind it: each takes
/// it for the other's.
#[test]
fn return_that_both_outboxes_took_for_the_others_goes_up_when_the_publication_comes() {
    let mut world = World::new();
    let [early, later, unknown] = [1, 2, 3].map(|number| {
        let jid = format!("20260101{number:012}");
        Jid::parse(&jid).unwrap()
    });
    let sent = |world: &mut World, name| sent_by(world.outboxes.get_mut(name).unwrap());
    let other = |number| Write::Return(returned(&later, number, 1));
    let published = Write::Job(job(&later, "one:4506"));
    world.database.commit(&[published, other(0)]).unwrap();
    world.database.commit(&reported(&early, 0)).unwrap();
    world.database.commit(&[other(1)]).unwrap();
    assert_eq!(sent(&mut world, "one:4506"), 2, "those of the other job");
    let published = Write::JobPart(job(&early, "one:4506"));
    world.database.commit(&[published]).unwrap();
    assert_eq!(sent(&mut world, "any"), 0);
    assert_eq!(sent(&mut world, "one:4506"), 0);

    let own = world.outboxes.get_mut("one:4506").unwrap();
    let one = HashSet::from([unknown]);
    assert_eq!(own.go_back_to(&one).unwrap(), one, "it is not found");
    assert_eq!(sent(&mut world, "one:4506"), 0, "a job without a return");
    let own = world.outboxes.get_mut("one:4506").unwrap();
    let early = HashSet::from([early]);
    own.go_back_to(&early).unwrap();
    assert_eq!(sent(&mut world, "one:4506"), 1, "it alone");
    let own = world.outboxes.get_mut("one:4506").unwrap();
    own.go_back_to(&early).unwrap();
    world.open("one:4506").unwrap();
    assert_eq!(
        sent(&mut world, "one:4506"),
        2,
        "it, and the one behind it, over a restart"
    );
}

/// The second job is published while the outbox is on its way for the first, which it has gone back further for.
#[test]
fn outbox_that_went_back_sends_returns_of_each_early_job_once_and_no_others() {
    let (mut world, jids) = with_returned_jobs(6);
    let own = world.outboxes.get_mut("one:4506").unwrap();
    for early in [1, 4] {
        let early = HashSet::from([jids[early].clone()]);
        assert!(own.go_back_to(&early).unwrap().is_empty());
    }
    assert_eq!(sent_by(own), 2);
    let later = Write::Return(returned(&jids[0], 1, 1));
    world.database.commit(&[later]).unwrap();
    assert_eq!(sent_by(world.outboxes.get_mut("one:4506").unwrap()), 1);
    let own = world.outboxes.get_mut("one:4506").unwrap();
    let early = HashSet::from([jids[5].clone()]);
    assert!(own.go_back_to(&early).unwrap().is_empty());
    assert_eq!(sent_by(own), 1, "those of before have gone up");
}

/// The process is killed when the publication is stored, and when it was begun and never came.
#[test]
fn killed_syndic_goes_back_for_the_job_that_it_was_about_to_publish() {
    for is_published in [true, false] {
        let mut world = World::new();
        let jid = Jid::parse("20260101000000000001").unwrap();
        world.database.commit(&reported(&jid, 0)).unwrap();
        assert_eq!(sent_by(world.outboxes.get_mut("one:4506").unwrap()), 0);
        let open = |world: &World| {
            let reader = world.database.reader().unwrap();
            EarlyJobs::with_options(&world.options, "syndic_one", &*reader).unwrap()
        };
        open(&world).begin(&jid).unwrap();
        if is_published {
            let published = Write::JobPart(job(&jid, "one:4506"));
            world.database.commit(&[published]).unwrap();
        }

        world.open("one:4506").unwrap();
        let uppers = [Arc::new(upper(open(&world)))];
        assert_eq!(uppers[0].early.are_due(), is_published);
        let own = world.outboxes.get_mut("one:4506").unwrap();
        assert!(go_back(&uppers, own).unwrap().is_empty());
        assert_eq!(sent_by(own), u64::from(is_published));
        assert!(!open(&world).are_due(), "once");
    }
}

/// The report comes when the uplink has looked for one, and before the publication is stored.
#[test]
fn return_that_comes_while_its_job_is_being_published_is_an_early_one() {
    let mut world = World::new();
    let jid = Jid::parse("20260101000000000001").unwrap();
    let reader = world.database.reader().unwrap();
    let is_early = |known: Option<&StoredJob>| was_returned_early(known, &jid, &*reader);
    let known = reader.load(&jid).unwrap();
    assert!(known.is_none());
    world.database.commit(&reported(&jid, 0)).unwrap();
    assert_eq!(sent_by(world.outboxes.get_mut("one:4506").unwrap()), 0);
    assert!(!is_early(known.as_ref()), "it is not published yet");
    let published = || Write::JobPart(job(&jid, "one:4506"));
    world.database.commit(&[published()]).unwrap();
    assert!(is_early(known.as_ref()));
    let known = reader.load(&jid).unwrap();
    world.database.commit(&[published()]).unwrap();
    assert!(!is_early(known.as_ref()), "a further part of a batch");
}

/// A world in which so many jobs of "one:4506" were returned by one minion each, whose returns were passed.
fn with_returned_jobs(count: usize) -> (World, Vec<Jid>) {
    let mut world = World::new();
    let jids = (0..count).map(|number| Jid::parse(&format!("20260101{number:012}")).unwrap());
    let jids: Vec<Jid> = jids.collect();
    for jid in &jids {
        let writes = [
            Write::Job(job(jid, "one:4506")),
            Write::Return(returned(jid, 0, 1)),
        ];
        world.database.commit(&writes).unwrap();
    }
    let own = world.outboxes.get_mut("one:4506").unwrap();
    assert_eq!(sent_by(own), count as u64);
    (world, jids)
}

/// The cursor cannot be saved: no job is forgotten, and one attempt is enough for all of them afterwards.
#[test]
fn jobs_for_which_an_outbox_could_not_go_back_wait_for_the_next_attempt() {
    let (mut world, jids) = with_returned_jobs(4);
    let reader = world.database.reader().unwrap();
    let early = EarlyJobs::with_options(&world.options, "syndic_one", &*reader).unwrap();
    let uppers = [Arc::new(upper(early))];
    for jid in &jids[1..] {
        assert!(uppers[0].returned_early(jid).unwrap());
    }
    let own = world.outboxes.get_mut("one:4506").unwrap();
    let name = super::super::uplink::file_name("one:4506");
    let cursor = world
        .options
        .private_dir()
        .join(format!("syndic_{name}_place"));
    fs::remove_file(&cursor).unwrap();
    fs::create_dir(&cursor).unwrap();
    assert!(go_back(&uppers, own).is_err());
    fs::remove_dir(&cursor).unwrap();
    assert_eq!(uppers[0].early.due().len(), 3);
    assert_eq!(sent_by(own), 3, "it has gone back all the same");
    assert!(go_back(&uppers, own).unwrap().is_empty());
    assert!(!uppers[0].early.are_due());
    assert_eq!(sent_by(own), 3);
}

/// Returns that go up once more may not push out those that wait.
#[test]
fn outbox_goes_back_no_further_than_returns_may_wait() {
    let (mut world, jids) = with_returned_jobs(4);
    let own = world.outboxes.get_mut("one:4506").unwrap();
    own.bound(None, 3);
    let one = |number: usize| HashSet::from([jids[number].clone()]);
    let none = HashSet::new();
    let mut lost = |number: usize| own.go_back_to(&one(number)).unwrap();
    assert_eq!(lost(0), one(0), "it would be the fourth");
    assert_eq!(lost(2), none);
    assert_eq!(lost(0), one(0), "counted at once: it comes no nearer");
    assert_eq!(lost(1), none);
    assert_eq!(sent_by(own), 2, "none is dropped");
}
