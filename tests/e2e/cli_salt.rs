//! `salt`, stock's beside ours: the same command lines under the same running master, beside a native
//! and a stock minion. Standard output and exit codes are equal, and so are the lines of standard error
//! that stock prints by itself; its log, warnings and tracebacks are not compared.

use std::fs;

use anyhow::{Result, ensure};
use saltern_tests::config::Config;
use saltern_tests::process::{Run, run};
use saltern_tests::site::{MinionKind, SOON};
use saltern_tests::{Release, Server, Site, TestResult, wait_until};

#[test]
fn salt_of_3006_prints_what_stock_does() -> TestResult {
    compare(Server::Saltern(Release::V3006), &[COMMON, OF_3006, FULL])
}

#[test]
fn salt_of_3008_prints_what_stock_does() -> TestResult {
    compare(Server::Saltern(Release::V3008), &[COMMON, FULL])
}

#[test]
fn salt_under_a_stock_master_of_3008_prints_what_stock_does() -> TestResult {
    compare(Server::Stock(Release::V3008), &[COMMON, OF_STOCK_MASTERS])
}

#[test]
fn salt_under_a_stock_master_of_3006_prints_what_stock_does() -> TestResult {
    compare(
        Server::Stock(Release::V3006),
        &[COMMON, OF_3006, OF_STOCK_MASTERS],
    )
}

type Line = &'static [&'static str];
type Lines = &'static [Line];

/// `m1` is native, and matches no compound target; `m2` is stock's, `m3` accepted and was never there.
const COMMON: Lines = &[
    &["m[12]", "test.ping"],
    &["m1", "test.ping"],
    &["-E", "m(1|2)", "test.ping"],
    &["-L", "m1,m2", "test.ping"],
    &["-L", "m1 m2", "test.ping"],
    &["-L", "m1,ghost", "-t", "4", "test.ping"],
    &["-L", "ghost", "test.ping"],
    &["-G", "role:web", "test.ping"],
    &["-G", "role|web", "--delimiter=|", "test.ping"],
    &["-P", "role:w.b", "test.ping"],
    &["-C", "G@role:web and m1", "test.ping"],
    &["-C", "none  or   E@m2", "test.ping"],
    &["-N", "pair", "test.ping"],
    &["-N", "nested", "test.ping"],
    &["-N", "nowhere", "test.ping"],
    &["-C", "N@pair and m2", "test.ping"],
    &["-C", "N@nowhere", "test.ping"],
    &["-I", "no:pillar", "test.ping"],
    &["-S", "192.0.2.1", "test.ping"],
    &["nobody", "test.ping"],
    &["nobody", "test.ping", "--out=json"],
    &["nobody", "test.ping", "--async"],
    &["m1", "test.ping,test.arg", ",", "x", "k=1"],
    &["m2", "test.ping,test.version", "--out=json"],
    &[
        "m1",
        "test.echo,test.arg",
        "--args-separator=::",
        "a,b",
        "::",
        "c",
    ],
    &["m1", "test.retcode", "7"],
    &["m[12]", "test.retcode", "3"],
    &["m2", "no.such"],
    &["m2", "test.ping", "unwanted"],
    &["m2", "cmd.run", "exit 3"],
    &["m1", "-v", "test.ping"],
    &["m1", "--show-jid", "test.ping"],
    &["m[12]", "--summary", "test.ping"],
    &["m[12]", "-v", "--summary", "test.retcode", "2"],
    &["m1", "--summary", "--out=json", "test.ping"],
    &["m[12]", "-s", "test.ping"],
    &["m1", "-s", "--out=json", "test.echo", "a"],
    &["nobody", "-s", "test.ping"],
    &["m1", "--async", "test.ping"],
    &["m1", "--metadata={a: 1}", "test.ping"],
    &["m2", "--subset=1", "test.ping"],
    &["m[12]", "--subset=2", "test.ping"],
    &["m2", "--subset=1", "no.such"],
    &["nobody", "--subset=1", "test.ping"],
    &["m2", "-d", "test.ping"],
    &["m2", "-d", "test.ping", "--out=json"],
    &["m2", "-d", "no.such"],
    &["nobody", "-d", "test.ping"],
    &["m[12]", "-b", "1", "test.ping"],
    &["m[12]", "-b", "100%", "test.echo", "x"],
    &["m1", "-b", "1", "test.retcode", "5"],
    &["nobody", "-b", "1", "test.ping"],
    &["m1", "-b", "1", "--out=json", "test.ping"],
    &["m[12]", "-s", "-b", "1", "test.ping"],
    &["m[12]", "--preview-target"],
    &["-L", "m1,ghost", "--preview-target"],
    &["-G", "role:web", "--preview-target"],
    &["nobody", "--preview-target"],
    &[
        "m[12]",
        "--batch-safe-limit=2",
        "--batch-safe-size=1",
        "test.ping",
    ],
    &["m[12]", "--batch-safe-limit=3", "test.ping"],
    &["m3", "test.ping"],
    &["m3", "-v", "--summary", "test.ping"],
    &["m3", "--out=json", "test.ping"],
    &["-L", "m1,m3", "-t", "4", "test.ping"],
    &["m3", "-s", "test.ping"],
    &["m3", "--hide-timeout", "test.ping"],
];

/// Batches with a minion of which our master does not know whether it is there.
const OF_STOCK_MASTERS: Lines = &[
    &["m[13]", "-b", "1", "-t", "4", "test.ping"],
    &["m3", "-b", "1", "test.ping"],
];

/// Outputters that 3008 does not have, and a batch that it prints otherwise.
const OF_3006: Lines = &[
    &["m1", "test.ping", "--out=quiet"],
    &["m1", "test.arg", "a", "--out=newline_values_only"],
    &["m1", "-b", "1", "test.ping,test.retcode"],
];

const FULL: Lines = &[
    &["*1", "test.ping"],
    &["m[13]", "-t", "4", "test.version"],
    &["-E", "m1$", "test.ping"],
    &["-C", "none or ( m2 and not none )", "test.ping"],
    &["-C", "L@none,m2 and P@role:web", "test.ping"],
    &["-L", "m1, m2", "test.ping"],
    &["-S", "192.0.2.0/24", "test.ping"],
    &["-J", "no:pillar", "test.ping"],
    &["-R", "m1", "test.ping"],
    &["m1", "test.arg", "1", "1.5", "true", "null", "None", "~"],
    &["m1", "test.arg", "[1, 2, x]", "{a: b}", "'1'", "\"x\""],
    &["m1", "test.arg", "a=1", "b={c: d}", "e=[]", "f="],
    &[
        "m1", "test.arg", "#x", "a#b", "a=#", "1_000", "0x10", "0o7", "1e3",
    ],
    &[
        "m1",
        "test.arg",
        "2026-01-02",
        "12:30",
        "20260102030405060708",
    ],
    &["m1", "test.arg", "", " ", "a: b", "- a", "!x", "|", "---"],
    &["m1", "test.arg", "k==v", "a=b=c", "x\ty", "é", "ü=ß"],
    &["m1", "--no-parse=a,b", "test.arg", "a=1", "b=[2]", "c=3"],
    &["m1", "test.arg", "--", "-x", "--out=json"],
    &["m2", "test.arg", "1", "[a, {b: c}]", "d={e: [f]}"],
    &["m1", "test.ping", "--out=yaml"],
    &["m[12]", "test.arg", "x", "y=[1, {z: null}]", "--out=yaml"],
    &["m1", "test.arg", "x", "y=1", "--out=raw"],
    &["m1", "test.arg", "x", "y=1", "--out=pprint"],
    &["m1", "test.ping", "--out=txt"],
    &["m1", "test.echo", "one\ntwo", "--out=txt"],
    &["m1", "test.arg", "x", "--out=json", "--out-indent=2"],
    &["m1", "test.arg", "x", "--out=json", "--out-indent=-1"],
    &["m1", "test.arg", "x", "--force-color"],
    &["m1", "test.retcode", "1", "--force-color"],
    &["m3", "test.ping", "--force-color"],
    &["m1", "test.arg", "x", "--force-color", "--no-color"],
    &["m1", "test.ping", "--out=nested"],
    &["m[12]", "test.ping,test.retcode", "--out=json"],
    &["m2", "test.ping,no.such"],
    &["m2", "--module-executors=[direct_call]", "test.ping"],
    &["m2", "--module-executors=[no_such]", "test.ping"],
    &["m1", "-v", "--show-jid", "test.ping"],
    &["m1", "-v", "--async", "test.ping"],
    &["m1", "--show-jid", "--subset=1", "test.ping"],
    &["m1", "--show-jid", "-s", "test.ping"],
    &["m2", "--return=no_such", "test.ping"],
    &["m1", "--static", "--out=yaml", "test.ping"],
    &["m2", "sys.doc", "test.ping"],
    &["m1", "-b", "50%", "-v", "test.ping"],
    &["m1", "-b", "1", "--failhard", "test.retcode", "4"],
    &["m[12]", "-b", "1", "--batch-wait=1", "test.ping"],
    &["-C", "G@role:web", "--preview-target"],
    &["m[12]", "--preview-target", "--out=json"],
    &["m[12]", "--out=no_such_outputter", "test.ping"],
    &[],
    &["m1"],
    &["-E", "-L", "m1", "test.ping"],
    &["--no-such-option", "m1", "test.ping"],
    &["m1", "a,b", "x"],
    &["m1", "a,b", "x,y,z"],
    &["m1", "-t", "x", "test.ping"],
    &["-d", "m1", "a", "b", "c"],
];

/// Options by which both commands find the same groups.
fn configure(config: &mut Config) {
    set_patience(config, PATIENT);
    config.set(
        "nodegroups",
        "{pair: 'none,m2', nested: 'N@both', both: [none, m2]}",
    );
}

/// Seconds for minions that answer, however busy the machine is.
const PATIENT: u32 = 60;

/// Seconds for minions that never answer: each such line waits for them, in both commands. A line with a minion that
/// does answer beside them has more by `-t`.
const BRIEF: u32 = 2;

fn set_patience(config: &mut Config, seconds: u32) {
    config
        .set("timeout", seconds)
        .set("gather_job_timeout", seconds);
}

/// Whether a line means a minion that does not answer: one that is not there, or the native one, whose
/// addresses and pillar the master does not know and which matches no such target.
fn waits_in_vain(line: &[&str]) -> bool {
    let in_vain = ["m3", "m[13]", "ghost", "-S", "-I", "-J"];
    line.iter()
        .any(|word| word.split(',').any(|id| in_vain.contains(&id)))
}

fn compare(server: Server, tables: &[Lines]) -> TestResult {
    let configure = |config: &mut Config| {
        configure(config);
        // A stock master does not say of which release it is; without this, our command takes the newest.
        config.set("salt_compat", server.release().compat());
    };
    Site::run(server, configure, |site| {
        let stock = MinionKind::Stock(server.release());
        site.bring_up(&[("m1", MinionKind::Native), ("m2", stock)])?;
        site.accept_beforehand("m3")?;
        site.announce("can only be resolved by a range server");
        // Both have their functions loaded, and their grains are cached.
        site.salt(&["m[12]", "test.ping"])?.expect_code(0)?;
        let (in_vain, answered): (Vec<_>, Vec<_>) = tables
            .iter()
            .copied()
            .flatten()
            .partition(|line| waits_in_vain(line));
        let mut differences = differences_in_lanes(site, &answered, ANSWERED)?;
        be_brief(site)?;
        differences.extend(differences_in_lanes(site, &in_vain, WAITING)?);
        let count = differences.len();
        ensure!(count == 0, "{count} differ:\n{}", differences.join("\n\n"));
        Ok(())
    })
}

/// Differences of the lines, one after the other.
fn differences_of(site: &Site, lines: &[&Line]) -> Result<Vec<String>> {
    let mut differences = Vec::new();
    for line in lines {
        let (stock, ours) = (site.salt(line)?, own(site, line)?);
        let of_stock = (shown(&stock.stdout), stock.code, printed(&stock.stderr));
        if of_stock != (shown(&ours.stdout), ours.code, printed(&ours.stderr)) {
            differences.push(format!("{stock}\n{ours}"));
        }
    }
    Ok(differences)
}

/// How many lines that only wait run at once.
const WAITING: usize = 4;

/// How many lines with an answer run at once: half of their time they wait for a minion to start a job.
const ANSWERED: usize = 2;

/// Differences of the lines, so many of them at once.
fn differences_in_lanes(site: &Site, lines: &[&Line], lanes: usize) -> Result<Vec<String>> {
    let share = lines.len().div_ceil(lanes).max(1);
    std::thread::scope(|scope| {
        let shares = lines.chunks(share);
        let runs: Vec<_> = shares
            .map(|lines| scope.spawn(move || differences_of(site, lines)))
            .collect();
        let mut differences = Vec::new();
        for run in runs {
            differences.extend(run.join().expect("a comparison does not panic")?);
        }
        Ok(differences)
    })
}

/// Has the master and both commands wait for a moment only; the minions are there again afterwards.
fn be_brief(site: &mut Site) -> Result<()> {
    set_patience(site.config(), BRIEF);
    site.write_config()?;
    site.announce("the publish connection broke");
    site.stop_master()?;
    site.start_master()?;
    site.wait_until_ready_again()?;
    wait_until("the minions to be back", SOON, || {
        let run = site.salt(&["m[12]", "test.ping"]).ok()?;
        // A request that a stock master does not answer in time ends with exit code 0, too.
        (run.stdout.matches("True").count() == 2).then_some(())
    })
}

fn own(site: &Site, words: &[&str]) -> Result<Run> {
    run(&mut site.own_command("salt", words), SOON)
}

/// How lines of standard error begin that are no log, no warning and no traceback.
const PRINTED: &[&str] = &["ERROR: ", "Usage: ", "salt: error: ", "Exiting "];

fn printed(stderr: &str) -> Vec<&str> {
    let is_printed = |line: &&str| PRINTED.iter().any(|begin| line.starts_with(begin));
    stderr.lines().filter(is_printed).collect()
}

/// Printed lines without those that differ from run to run: job ids, the order in which minions answer,
/// and that of a list of minions, which is a set to stock. The help is worded otherwise.
fn shown(stdout: &str) -> Vec<String> {
    if stdout.starts_with("Usage") {
        return Vec::new();
    }
    let mut blocks: Vec<String> = Vec::new();
    for line in stdout.lines() {
        let line = without_jids(line);
        let goes_on = line.starts_with([' ', '-']) && !line.starts_with("- ");
        match blocks.last_mut().filter(|_| goes_on) {
            Some(block) => block.push_str(&format!("\n{line}")),
            None => blocks.push(line),
        }
    }
    blocks.sort();
    blocks
}

/// The line with `JID` in place of each run of at least twenty digits.
fn without_jids(line: &str) -> String {
    let mut shown = String::new();
    let mut digits = String::new();
    for letter in line.chars().chain(['\n']) {
        if letter.is_ascii_digit() {
            digits.push(letter);
            continue;
        }
        let is_jid = digits.len() >= 20;
        shown.push_str(if is_jid { "JID" } else { &digits });
        digits.clear();
        shown.push(letter);
    }
    shown.trim_end_matches('\n').to_owned()
}

/// A user who logs in may do what the rules of that user permit, and is refused as stock refuses.
#[test]
fn salt_with_eauth_prints_what_stock_does() -> TestResult {
    let lines: Lines = &[
        &[
            "--username=ana",
            "--password=open sesame",
            "m1",
            "test.ping",
        ],
        &[
            "--username=eve",
            "--password=open sesame",
            "m1",
            "test.ping",
        ],
        &["--username=eve", "--password=open sesame", "m1", "test.arg"],
        &["--username=ana", "--password=wrong", "m1", "test.ping"],
        &[
            "--username=nobody",
            "--password=open sesame",
            "m1",
            "test.ping",
        ],
        &[
            "--username=ana",
            "--password=open sesame",
            "m1",
            "-b",
            "1",
            "test.ping",
        ],
        &[
            "--username=ana",
            "--password=open sesame",
            "m1",
            "-s",
            "test.ping",
        ],
        &[
            "--username=ana",
            "--password=open sesame",
            "m1",
            "-T",
            "test.ping",
        ],
    ];
    let rules = "{sharedsecret: {ana: ['.*'], eve: [{m1: ['test.ping']}]}}";
    Site::run(
        Server::Saltern(Release::V3008),
        |config| {
            configure(config);
            config
                .set("external_auth", rules)
                .set("sharedsecret", "'open sesame'");
        },
        |site| {
            let token = site.path("token");
            site.config().set("token_file", token.display());
            site.write_config()?;
            site.bring_up(&[("m1", MinionKind::Native)])?;
            site.announce("request refused: ");
            let mut differences = Vec::new();
            for line in lines {
                let words = [&["-a", "sharedsecret"][..], line].concat();
                // Who has a token is not asked.
                fs::remove_file(&token).ok();
                let stock = site.salt(&words)?;
                let is_kept = token.exists();
                fs::remove_file(&token).ok();
                let ours = own(site, &words)?;
                let of_stock = (shown(&stock.stdout), stock.code, is_kept);
                if of_stock != (shown(&ours.stdout), ours.code, token.exists()) {
                    differences.push(format!("{stock}\n{ours}"));
                }
            }
            ensure!(differences.is_empty(), "{}", differences.join("\n\n"));
            Ok(())
        },
    )
}

/// Options of the calling user, and a command line that shows them.
const OF_THE_USER: &[(&str, &[&str])] = &[
    ("output: json", &["m1", "test.arg", "x"]),
    (
        "output: json\noutput_indent: pretty",
        &["m1", "test.arg", "x"],
    ),
    ("output: json\noutput_indent: 1", &["m1", "test.arg", "x"]),
    ("output: yaml", &["m1", "--out=txt", "test.ping"]),
    ("show_jid: True", &["m1", "test.ping"]),
    ("verbose: True", &["m1", "test.ping"]),
    ("color: RED", &["m1", "test.arg", "x"]),
    ("color: True", &["m1", "test.arg", "x"]),
    ("color: RED", &["m1", "--no-color", "test.arg", "x"]),
    (
        "color_theme: THEME",
        &["m1", "--force-color", "test.arg", "x"],
    ),
    (
        "color_theme: /no/such",
        &["m1", "--force-color", "test.arg", "x"],
    ),
    (
        "state_output: terse\nstrip_colors: False",
        &["m1", "test.echo", "\x1b[1m"],
    ),
    ("out.table.has_header: False", TABLE),
    (
        "out.table.separate_rows: False\nout.table.delim: ' # '",
        TABLE,
    ),
    (
        "out.table.prefix: '['\nout.table.suffix: ']'\nout.table.row_delimiter: '='",
        TABLE,
    ),
    ("out.table.justify: left\nout.table.width: 10", TABLE),
    (
        "out.table.justify: right\nout.table.nested_indent: 4",
        TABLE,
    ),
    ("out.table.rows_key: m1\nout.table.title: Title", TABLE),
];

const TABLE: &[&str] = &[
    "m1",
    "--out=table",
    "test.echo",
    "[{name: one, text: some words that are wrapped}, {name: two, text: ''}]",
];

/// By `SALT_CLIENT_CONFIG`, and by `~/.saltrc`.
#[test]
fn salt_reads_the_options_of_the_user_as_stock_does() -> TestResult {
    Site::run(Server::Saltern(Release::V3008), configure, |site| {
        site.bring_up(&[("m1", MinionKind::Native)])?;
        let home = site.path("home");
        fs::create_dir_all(&home)?;
        let theme = site.path("theme");
        fs::write(&theme, "CYAN: '1;35'\nGREEN: 4\n")?;
        let mut differences = Vec::new();
        for (number, (options, words)) in OF_THE_USER.iter().enumerate() {
            let options = options.replace("THEME", &theme.display().to_string());
            // As one of the two, in turn.
            let is_named = number % 2 == 0;
            let file = home.join(if is_named { "named" } else { ".saltrc" });
            fs::write(&file, options + "\n")?;
            let mut runs = Vec::new();
            for mut command in [
                site.stock_command("salt", words),
                site.own_command("salt", words),
            ] {
                command.env("HOME", &home).env_remove("XDG_CONFIG_HOME");
                if is_named {
                    command.env("SALT_CLIENT_CONFIG", &file);
                }
                runs.push(run(&mut command, SOON)?);
            }
            fs::remove_file(&file)?;
            let [stock, ours] =
                <[Run; 2]>::try_from(runs).map_err(|_| anyhow::anyhow!("two commands ran"))?;
            if (shown(&stock.stdout), stock.code) != (shown(&ours.stdout), ours.code) {
                differences.push(format!("{stock}\n{ours}"));
            }
        }
        ensure!(differences.is_empty(), "{}", differences.join("\n\n"));
        Ok(())
    })
}
