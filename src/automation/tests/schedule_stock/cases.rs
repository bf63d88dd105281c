//! Schedules that are compared with stock's, and those that are known to differ.

/// Schedule with the clock of its ticks.
#[derive(Debug)]
pub(crate) struct Case {
    /// The option, in YAML.
    pub(crate) schedule: &'static str,
    /// The first tick, in local time.
    pub(crate) start: &'static str,
    /// Seconds from tick to tick, and stock's `loop_interval`.
    pub(crate) tick: u64,
    /// The number of ticks.
    pub(crate) ticks: usize,
    /// No run is expected: without this, a case without runs would prove nothing.
    pub(crate) never: bool,
}

const fn case(schedule: &'static str, start: &'static str, (tick, ticks): (u64, usize)) -> Case {
    Case {
        schedule,
        start,
        tick,
        ticks,
        never: false,
    }
}

const fn never(schedule: &'static str, start: &'static str, (tick, ticks): (u64, usize)) -> Case {
    Case {
        never: true,
        ..case(schedule, start, (tick, ticks))
    }
}

/// A Sunday, half a minute before 4 pm.
const SUNDAY: &str = "2026-11-22T15:59:30.300000";

/// Cases in which both run alike.
#[rustfmt::skip]
pub(crate) const CASES: &[Case] = &[
    case("job:\n  function: test.arg\n  seconds: 1", SUNDAY, (1, 120)),
    case("job:\n  function: test.arg\n  seconds: 7", SUNDAY, (1, 120)),
    case("job:\n  function: test.arg\n  minutes: 1", SUNDAY, (10, 60)),
    case("job:\n  function: test.arg\n  seconds: 30\n  minutes: 1", SUNDAY, (5, 100)),
    case("job:\n  function: test.arg\n  hours: 1", SUNDAY, (60, 300)),
    case("job:\n  function: test.arg\n  days: 1", SUNDAY, (600, 500)),
    case("job:\n  function: test.arg\n  days: 1\n  hours: 2", SUNDAY, (600, 500)),
    case("job:\n  function: test.arg\n  seconds: '5'", SUNDAY, (1, 120)),
    case("job:\n  function: test.arg\n  seconds: 5.9", SUNDAY, (1, 120)),
    case("job:\n  function: test.arg\n  seconds: 5\n  run_on_start: False", SUNDAY, (1, 120)),
    case("job:\n  function: test.arg\n  seconds: 5\n  run_on_start: True", SUNDAY, (1, 120)),
    never("job:\n  function: test.arg\n  seconds: 5\n  enabled: False", SUNDAY, (1, 120)),
    case("job:\n  function: test.arg\n  seconds: 5\n  enabled: True", SUNDAY, (1, 120)),
    case("job:\n  function: test.arg\n  seconds: 45", SUNDAY, (20, 60)),
    case("job:\n  function: test.arg\n  seconds: 5\n  splay: {start: 2, end: 2}", SUNDAY, (1, 120)),
    case("job:\n  function: test.arg\n  seconds: 5\n  splay: 1", SUNDAY, (1, 120)),
    case("job:\n  function: test.arg\n  minutes: 2\n  splay: {start: 30, end: 30}", SUNDAY, (5, 200)),
    case("job:\n  function: test.arg\n  cron: '*/2 * * * *'\n  splay: {start: 10, end: 10}", SUNDAY, (1, 400)),
    case("job:\n  function: test.arg\n  when: '4:00pm'\n  splay: {start: 10, end: 10}", SUNDAY, (1, 120)),
    case("job:\n  function: test.arg\n  cron: '* * * * *'", SUNDAY, (30, 600)),
    case("job:\n  function: test.arg\n  cron: '*/2 * * * *'", SUNDAY, (30, 600)),
    case("job:\n  function: test.arg\n  cron: '0 * * * *'", SUNDAY, (30, 600)),
    case("job:\n  function: test.arg\n  cron: '0 16 * * *'", SUNDAY, (30, 600)),
    case("job:\n  function: test.arg\n  cron: '1-59/15 * * * *'", SUNDAY, (30, 600)),
    case("job:\n  function: test.arg\n  cron: '5,10,15 * * * *'", SUNDAY, (30, 600)),
    case("job:\n  function: test.arg\n  cron: '0 17 22 11 *'", SUNDAY, (30, 600)),
    case("job:\n  function: test.arg\n  cron: '* * * * * */20'", SUNDAY, (10, 600)),
    case("job:\n  function: test.arg\n  cron: '* * * * * 5'", SUNDAY, (10, 600)),
    case("job:\n  function: test.arg\n  cron: '0 16-18 * * sun'", SUNDAY, (30, 600)),
    case("job:\n  function: test.arg\n  cron: '0 16 * * 7'", SUNDAY, (30, 600)),
    never("job:\n  function: test.arg\n  cron: '0 16 * * 1-5'", SUNDAY, (30, 600)),
    case("job:\n  function: test.arg\n  cron: '30 17 1 * sun'", SUNDAY, (30, 600)),
    never("job:\n  function: test.arg\n  cron: '0 0 1 1 *'", SUNDAY, (30, 600)),
    case("job:\n  function: test.arg\n  cron: '@hourly'", SUNDAY, (30, 600)),
    never("job:\n  function: test.arg\n  cron: '@daily'", SUNDAY, (30, 600)),
    never("job:\n  function: test.arg\n  cron: '@midnight'", SUNDAY, (30, 600)),
    case("job:\n  function: test.arg\n  cron: '0 16 * nov *'", SUNDAY, (30, 600)),
    case("job:\n  function: test.arg\n  cron: '*/10 16,18 * * *'", SUNDAY, (30, 600)),
    case("job:\n  function: test.arg\n  cron: '0 4 * * *'", "2027-11-22T15:59:00.300000", (1800, 5280)),
    case("job:\n  function: test.arg\n  cron: '30 4 1 * *'", "2027-11-22T15:59:00.300000", (1800, 5280)),
    case("job:\n  function: test.arg\n  cron: '0 0 29 2 *'", "2027-11-22T15:59:00.300000", (1800, 5280)),
    case("job:\n  function: test.arg\n  cron: '0 12 * * mon'", "2027-11-22T15:59:00.300000", (1800, 5280)),
    case("job:\n  function: test.arg\n  cron: '0 12 * * mon,thu'", "2027-11-22T15:59:00.300000", (1800, 5280)),
    case("job:\n  function: test.arg\n  cron: '15 3 1,15 * *'", "2027-11-22T15:59:00.300000", (1800, 5280)),
    case("job:\n  function: test.arg\n  cron: '0 0 * * sun'", "2027-11-22T15:59:00.300000", (1800, 5280)),
    case("job:\n  function: test.arg\n  cron: '15 14 1 * *'", "2027-11-22T15:59:00.300000", (1800, 5280)),
    case("job:\n  function: test.arg\n  cron: '0 22 * * 1-5'", "2027-11-22T15:59:00.300000", (1800, 5280)),
    case("job:\n  function: test.arg\n  cron: '5 4 * * sun'", "2027-11-22T15:59:00.300000", (1800, 5280)),
    case("job:\n  function: test.arg\n  cron: '0 0 1 1 *'", "2027-11-22T15:59:00.300000", (1800, 5280)),
    case("job:\n  function: test.arg\n  cron: '@weekly'", "2027-11-22T15:59:00.300000", (1800, 5280)),
    case("job:\n  function: test.arg\n  cron: '@monthly'", "2027-11-22T15:59:00.300000", (1800, 5280)),
    case("job:\n  function: test.arg\n  cron: '0 8 L * *'", "2027-11-22T15:59:00.300000", (1800, 5280)),
    case("job:\n  function: test.arg\n  cron: '0 6 * * 5#2'", "2027-11-22T15:59:00.300000", (1800, 5280)),
    case("job:\n  function: test.arg\n  cron: '59 23 31 12 *'", "2027-11-22T15:59:00.300000", (1800, 5280)),
    case("job:\n  function: test.arg\n  cron: '0 12 */5 * *'", "2027-11-22T15:59:00.300000", (1800, 5280)),
    case("job:\n  function: test.arg\n  cron: '0 12 1 */3 *'", "2027-11-22T15:59:00.300000", (1800, 5280)),
    case("job:\n  function: test.arg\n  cron: '0 12 13 * fri'", "2027-11-22T15:59:00.300000", (1800, 5280)),
    case("job:\n  function: test.arg\n  cron: '0 12 * * fri-sun'", "2027-11-22T15:59:00.300000", (1800, 5280)),
    case("job:\n  function: test.arg\n  when: '4:00pm'", SUNDAY, (1, 120)),
    never("job:\n  function: test.arg\n  when: '3:00pm'", SUNDAY, (1, 120)),
    case("job:\n  function: test.arg\n  when: '15:59:45'", SUNDAY, (1, 120)),
    case("job:\n  function: test.arg\n  when: ['15:59:45', '4:00pm', '4:00:30pm']", SUNDAY, (1, 120)),
    case("job:\n  function: test.arg\n  when: 'Sunday 4:00pm'", SUNDAY, (1, 120)),
    case("job:\n  function: test.arg\n  when: 'Monday 4:00pm'", SUNDAY, (60, 3000)),
    case("job:\n  function: test.arg\n  when: '2026-11-22 16:00'", SUNDAY, (1, 120)),
    case("job:\n  function: test.arg\n  when: '2026-11-23T16:00:00'", SUNDAY, (60, 3000)),
    case("job:\n  function: test.arg\n  when: 'November 22, 2026 4:00pm'", SUNDAY, (1, 120)),
    case("job:\n  function: test.arg\n  when: '11/22/2026 4:00pm'", SUNDAY, (1, 120)),
    case("job:\n  function: test.arg\n  when: ['Sunday 4pm','Monday 4:30pm','Tuesday 9am']", SUNDAY, (60, 5000)),
    case("job:\n  function: test.arg\n  when: '22 Nov 2026 16:00:10'", SUNDAY, (1, 120)),
    case("job:\n  function: test.arg\n  when: ['3:00pm', '4:00pm']", SUNDAY, (1, 120)),
    case("job:\n  function: test.arg\n  when: ['4:00pm', 'Dec 24 4pm']", SUNDAY, (60, 200)),
    case("job:\n  function: test.arg\n  when: '15:59:30'", SUNDAY, (1, 120)),
    never("job:\n  function: test.arg\n  when: 'nonsense'", SUNDAY, (1, 120)),
    never("job:\n  function: test.arg\n  when: '4:00pm'\n  enabled: False", SUNDAY, (1, 120)),
    case("job:\n  function: test.arg\n  once: '2026-11-22T16:00:00'", SUNDAY, (1, 120)),
    never("job:\n  function: test.arg\n  once: '2026-11-22T15:00:00'", SUNDAY, (1, 120)),
    case("job:\n  function: test.arg\n  once: '2026-11-22 16:00'\n  once_fmt: '%Y-%m-%d %H:%M'", SUNDAY, (1, 120)),
    never("job:\n  function: test.arg\n  once: '4pm'", SUNDAY, (1, 120)),
    case("job:\n  function: test.arg\n  once: 2026-11-23T10:00:00", SUNDAY, (60, 2000)),
    case("job:\n  function: test.arg\n  once: '2026-11-22T15:59:30'", SUNDAY, (1, 120)),
    case("job:\n  function: test.arg\n  seconds: 5\n  range: {start: '4:00pm', end: '4:01pm'}", SUNDAY, (1, 200)),
    case("job:\n  function: test.arg\n  seconds: 5\n  range: {start: '4:00pm', end: '4:01pm', invert: True}", SUNDAY, (1, 200)),
    case("job:\n  function: test.arg\n  seconds: 5\n  run_on_start: False\n  range: {start: '4:00:03pm', end: '4:01pm'}", SUNDAY, (1, 200)),
    case("job:\n  function: test.arg\n  seconds: 7\n  range: {start: '9:00am', end: '5:00pm'}", "2026-11-22T16:59:30.3", (1, 100)),
    case("job:\n  function: test.arg\n  hours: 2\n  range: {start: '9:00am', end: '5:00pm'}", SUNDAY, (60, 4000)),
    case("job:\n  function: test.arg\n  hours: 3\n  range: {start: '9:00am', end: '5:00pm', invert: True}", SUNDAY, (60, 4000)),
    case("job:\n  function: test.arg\n  cron: '* * * * *'\n  range: {start: '4:01pm', end: '4:03pm'}", SUNDAY, (1, 400)),
    case("job:\n  function: test.arg\n  cron: '0 * * * *'\n  range: {start: '9:00am', end: '5:00pm'}", SUNDAY, (60, 4000)),
    case("job:\n  function: test.arg\n  when: '4:00pm'\n  range: {start: '3:00pm', end: '5:00pm'}", SUNDAY, (1, 120)),
    never("job:\n  function: test.arg\n  when: '4:00pm'\n  range: {start: '4:30pm', end: '5:00pm'}", SUNDAY, (1, 120)),
    case("job:\n  function: test.arg\n  seconds: 5\n  range: {start: '2026-11-22 16:00:10', end: '2026-11-22 16:00:40'}", SUNDAY, (1, 120)),
    case("job:\n  function: test.arg\n  hours: 5\n  range: {start: 'Monday 9:00am', end: 'Monday 5:00pm'}", SUNDAY, (60, 4000)),
    case("job:\n  function: test.arg\n  seconds: 5\n  skip_during_range: {start: '4:00pm', end: '4:01pm'}", SUNDAY, (1, 200)),
    case("job:\n  function: test.arg\n  seconds: 5\n  skip_during_range: {start: '4:00pm', end: '4:01pm'}\n  run_after_skip_range: True", SUNDAY, (1, 200)),
    case("job:\n  function: test.arg\n  cron: '*/10 * * * *'\n  skip_during_range: {start: '4:05pm', end: '5:05pm'}", SUNDAY, (20, 400)),
    case("job:\n  function: test.arg\n  hours: 1\n  skip_during_range: {start: '8:00pm', end: '11:00pm'}", SUNDAY, (60, 2000)),
    case("job:\n  function: test.arg\n  minutes: 7\n  run_on_start: False\n  skip_during_range: {start: '4:00pm', end: '4:20pm'}\n  run_after_skip_range: True", SUNDAY, (1, 2400)),
    case("skip_during_range: {start: '4:00pm', end: '4:01pm'}\njob:\n  function: test.arg\n  seconds: 5", SUNDAY, (1, 200)),
    case("skip_function: test.echo\nskip_during_range: {start: '4:00pm', end: '4:01pm'}\njob:\n  function: test.arg\n  seconds: 50", SUNDAY, (1, 100)),
    case("skip_function: test.echo\njob:\n  function: test.arg\n  seconds: 5\n  range: {start: '4:00pm', end: '4:01pm'}\n  run_on_start: False", SUNDAY, (1, 30)),
    case("job:\n  function: test.arg\n  seconds: 5\n  until: '4:00pm'", SUNDAY, (1, 120)),
    case("job:\n  function: test.arg\n  seconds: 5\n  after: '4:00pm'", SUNDAY, (1, 120)),
    case("job:\n  function: test.arg\n  seconds: 5\n  until: '2026-11-22T16:00:00'", SUNDAY, (1, 120)),
    case("job:\n  function: test.arg\n  seconds: 5\n  after: '2026-11-22 16:00:00'", SUNDAY, (1, 120)),
    case("job:\n  function: test.arg\n  cron: '* * * * *'\n  until: '4:03pm'", SUNDAY, (1, 400)),
    case("job:\n  function: test.arg\n  cron: '* * * * *'\n  after: '4:03pm'", SUNDAY, (1, 400)),
    case("job:\n  function: test.arg\n  hours: 1\n  after: '9:00am'", SUNDAY, (60, 3000)),
    never("enabled: False\njob:\n  function: test.arg\n  seconds: 5", SUNDAY, (1, 120)),
    case("enabled: True\njob:\n  function: test.arg\n  seconds: 5", SUNDAY, (1, 120)),
    case("splay: {start: 3, end: 3}\njob:\n  function: test.arg\n  seconds: 5", SUNDAY, (1, 120)),
    case("splay: {start: 3, end: 3}\njob:\n  function: test.arg\n  seconds: 5\n  splay: {start: 1, end: 1}", SUNDAY, (1, 120)),
    never("job:\n  function: test.arg\n  cron: '* * * * *'\n  when: '4:00pm'", SUNDAY, (1, 120)),
    never("job:\n  function: test.arg\n  once: '2026-11-22T16:00:00'\n  when: '4:00pm'", SUNDAY, (1, 120)),
    case("job:\n  function: test.arg\n  seconds: 10\n  when: '4:00pm'", SUNDAY, (1, 120)),
    case("job:\n  function: test.arg\n  seconds: 10\n  cron: '* * * * *'", SUNDAY, (1, 120)),
    case("job:\n  function: test.arg\n  name: other\n  seconds: 10", SUNDAY, (1, 120)),
    case("job:\n  func: test.arg\n  seconds: 10", SUNDAY, (1, 120)),
    case("job:\n  fun: test.arg\n  seconds: 10", SUNDAY, (1, 120)),
    never("job:\n  function: test.arg\n  cron: 'x y'", SUNDAY, (1, 120)),
    never("job:\n  function: test.arg\n  cron: '61 * * * *'", SUNDAY, (1, 120)),
    never("job:\n  function: test.arg\n  cron: '0 0 30 2 *'", SUNDAY, (1, 120)),
    never("job:\n  function: test.arg\n  metadata: {a: b}", SUNDAY, (1, 120)),
    case("job:\n  function: test.arg\n  seconds: 4\nother:\n  function: test.arg\n  cron: '* * * * *'\nthird:\n  function: test.arg\n  when: '4:00pm'", SUNDAY, (1, 120)),
    case("job:\n  function: test.arg\n  seconds: 10\n  maxrunning: 3", SUNDAY, (1, 120)),
    case("job:\n  function: test.arg\n  seconds: 10\n  jid_include: False", SUNDAY, (1, 120)),
    case("job:\n  function: test.arg\n  seconds: 10\n  return_job: False", SUNDAY, (1, 120)),
];

/// Cases that differ: the ticks at which ours runs, and why.
#[rustfmt::skip]
pub(crate) const DIFFERENT: &[(Case, &[usize], &str)] = &[
    (
        case("job:\n  function: test.arg\n  when: '4:00pm'", SUNDAY, (60, 3000)),
        &[1, 1441, 2881],
        "a time of day comes every day; stock runs such a job on the first day only",
    ),
    (
        case("job:\n  function: test.arg\n  when: ['4:00pm', '6:00pm']", SUNDAY, (60, 1600)),
        &[1, 121, 1441, 1561],
        "the first time of a list comes every day; stock runs it on the first day only",
    ),
    (
        case("job:\n  function: test.arg\n  weeks: 1", SUNDAY, (43200, 30)),
        &[0, 14, 28],
        "weeks are a unit; stock knows none, and never runs such a job",
    ),
    (
        case("other: 5\njob:\n  function: test.arg\n  seconds: 50", SUNDAY, (10, 13)),
        &[0, 5, 10],
        "what is wrong with one job concerns no other; stock gives up on all of them",
    ),
    (
        case("job:\n  function: test.arg\n  seconds: 50\n  splay: {start: 3, end: 2}", SUNDAY, (10, 13)),
        &[0, 5, 10],
        "such a splay is ignored; stock says so, and then fails",
    ),
    (
        case("job:\n  function: test.arg\n  seconds: 10\n  until: '4:00pm'\n  after: '3:00pm'", SUNDAY, (10, 10)),
        &[0, 1, 2],
        "every condition has to allow a run; the last one that stock looks at decides",
    ),
    (
        case("job:\n  function: test.arg\n  once: '2026-11-22T16:00:00'\n  splay: {start: 20, end: 20}", SUNDAY, (10, 10)),
        &[5],
        "a splay delays every kind of job; stock's are not delayed if they run once",
    ),
];
