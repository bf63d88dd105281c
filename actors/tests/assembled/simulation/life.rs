//! One life of a master, from its start to its death or to the end of the run.

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use actix_rt::System;
use saltern_actors::Master;
use saltern_base::clock::Clock;
use saltern_base::fail_point::FailPoint;
use saltern_base::simulation;
use saltern_wire::net::simulated::Network;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::disk::Disk;
use super::history::What;
use super::random::Random;
use super::site::{config, log_of, parts};
use super::weather::Weather;
use super::world::{CALM, END, Kill, START, World};

/// The times of a life, for minions and clients.
#[derive(Clone)]
pub(super) struct Scene {
    clock: Clock,
    began: Instant,
    at: Duration,
}

impl Scene {
    /// The time of the run.
    pub(super) fn now(&self) -> Duration {
        self.at + self.began.elapsed()
    }

    /// The time of day.
    pub(super) fn time_of_day(&self) -> SystemTime {
        self.clock.now()
    }

    pub(super) async fn until(&self, at: Duration) {
        sleep_until(self.began + at.saturating_sub(self.at)).await;
    }
}

/// The death of a master: what it does afterwards nobody sees.
struct Death {
    network: Arc<Network>,
    disk: Arc<Disk>,
    clock: Clock,
    dirs: (PathBuf, PathBuf),
    has_come: Cell<bool>,
    came: Notify,
}

impl Death {
    fn strike(&self) {
        if !self.has_come.replace(true) {
            self.network.kill_master();
            let dirs = (self.dirs.0.as_path(), self.dirs.1.as_path());
            self.disk.leave(dirs, self.clock.now());
            self.came.notify_one();
        }
    }
}

/// Runs a master until it dies, or to the end of the run: then it is `true`.
pub(super) fn live(world: &World, is_last: bool) -> bool {
    let system = System::with_tokio_rt(|| {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().start_paused(true).build().unwrap()
    });
    system.block_on(lived(world, is_last))
}

async fn lived(world: &World, is_last: bool) -> bool {
    let (life, at) = (world.life.get(), world.at.get());
    let start = SystemTime::UNIX_EPOCH + START + at;
    // That of the master jumps; its peers and the weather have their own.
    let (clock, right_clock) = (Clock::simulated(start), Clock::simulated(start));
    let scene = Scene {
        clock: right_clock.clone(),
        began: Instant::now(),
        at,
    };
    let network = Network::new(Weather::new(world.seed, life, right_clock));
    let _network = network.enter();
    let config = Arc::new(config(&world.dir()));
    let has_faults = at < CALM;
    let random = Random::new(world.seed, 200 + life);
    let disk = Disk::new(random, log_of(&config), has_faults, &world.history);
    let kill = if is_last { None } else { world.next_kill() };
    let death = Rc::new(Death {
        network,
        disk: disk.clone(),
        clock: clock.clone(),
        dirs: (world.dir(), world.next_dir()),
        has_come: Cell::default(),
        came: Notify::new(),
    });
    let seed = world.seed ^ (life << 56);
    let _simulation = simulation::enter(seed, world.planted, watch(kill, death.clone(), &scene));
    let mut parts = parts(&config, clock.clone());
    parts.database = disk.under(parts.database);
    let master = Master::start(parts).unwrap();
    world.history.note(scene.now(), "master", What::Started);
    for minion in &world.minions {
        minion.clone().live(&scene).await;
    }
    world.client.clone().live(&scene);
    actix_rt::spawn(calm(scene.clone(), death.network.clone()));
    let random = Random::new(world.seed, 300 + life);
    actix_rt::spawn(jumps(clock, scene.clone(), random));
    let killed_at = match kill {
        Some(Kill::At(at)) => at.max(scene.now()),
        _ => END * 2,
    };
    let ended = tokio::select! {
        biased;
        () = death.came.notified() => false,
        () = scene.until(killed_at) => { death.strike(); false }
        () = scene.until(END) => true,
    };
    if ended {
        master.shutdown().await;
    } else {
        world.history.note(scene.now(), "master", What::Killed);
    }
    world.at.set(scene.now());
    ended
}

/// From the calm on, no connection is cut, however old.
async fn calm(scene: Scene, network: Arc<Network>) {
    scene.until(CALM).await;
    network.spare_connections();
}

/// In one of three lives the time of day of the master's machine jumps, by up to an hour forwards or back.
async fn jumps(clock: Clock, scene: Scene, mut random: Random) {
    if !random.one_in(3) {
        return;
    }
    for _ in 0..random.within(1..4) {
        let at = scene.now() + random.millis(500..40_000);
        if at >= CALM {
            return;
        }
        scene.until(at).await;
        let by = random.millis(1_000..3_600_000);
        let now = clock.now();
        clock.jump(if random.one_in(2) { now + by } else { now - by });
    }
}

/// Observer of fail points, at one of which the master may die.
fn watch(kill: Option<Kill>, death: Rc<Death>, scene: &Scene) -> impl FnMut(FailPoint) + use<> {
    let left = RefCell::new(kill);
    let scene = scene.clone();
    move |point| {
        let mut left = left.borrow_mut();
        if let Some(Kill::Passing(place, count)) = &mut *left
            && *place == point
            && scene.now() < CALM
        {
            *count -= 1;
            if *count == 0 {
                *left = None;
                death.strike();
            }
        }
    }
}
