use super::*;

fn at(text: &str) -> DateTime {
    text.parse().unwrap()
}

/// The result of each text on 22 November 2026, a Sunday.
#[test]
fn texts_parse_as_in_stock() {
    let today = Date::constant(2026, 11, 22);
    let table = [
        ("5:00pm", "2026-11-22T17:00:00"),
        ("5pm", "2026-11-22T17:00:00"),
        ("5 PM", "2026-11-22T17:00:00"),
        ("12:30am", "2026-11-22T00:30:00"),
        ("12:30 pm", "2026-11-22T12:30:00"),
        ("17:00:30.25", "2026-11-22T17:00:30.25"),
        ("Monday 5:00pm", "2026-11-23T17:00:00"),
        ("Sun, 09:18:10", "2026-11-22T09:18:10"),
        ("saturday", "2026-11-28T00:00:00"),
        ("2027-01-30 14:00", "2027-01-30T14:00:00"),
        ("2027-01-30T14:00:05", "2027-01-30T14:00:05"),
        ("20270130T14:00", "2027-01-30T14:00:00"),
        ("11/29/2017 4:00pm", "2017-11-29T16:00:00"),
        ("29/11/2017 4:00pm", "2017-11-29T16:00:00"),
        ("January 30, 2017 2:00pm", "2017-01-30T14:00:00"),
        ("30 sept 2017 at 9am", "2017-09-30T09:00:00"),
        ("December 24 4pm", "2026-12-24T16:00:00"),
        ("Dec 24th", "2026-12-24T00:00:00"),
        ("Fri Dec 25 2026 08:00", "2026-12-25T08:00:00"),
    ];
    for (text, expected) in table {
        let moment = Moment::parse(text).unwrap_or_else(|| panic!("{text:?} is not understood"));
        assert_eq!(moment.on(today), Some(at(expected)), "{text:?}");
    }
}

#[test]
fn ambiguous_text_is_refused() {
    let table = [
        "",
        " ",
        "noon",
        "tomorrow",
        "25:00",
        "5:61",
        "13pm",
        "0am",
        "17",
        "May",
        "2027",
        "2026-02-30",
        "13/13/2017",
        "1/2/17",
        "5:00pm 6:00pm",
        "5:00pm Z",
        "5:00+01:00",
        "5:00pm UTC",
        "May May 5",
        "Montag 5:00",
        "５:00",
        "am",
        "T",
        "1-2-3-4",
        "-1:00",
        "5:00:00.x",
    ];
    for text in table {
        assert_eq!(Moment::parse(text), None, "{text:?}");
    }
    assert_eq!(Moment::parse(&"5:00 ".repeat(100)), None);
}

#[test]
fn open_moment_recurs() {
    let next = |text: &str, from: &str| Moment::parse(text).unwrap().next(at(from), false);
    let table = [
        ("5pm", "2026-11-22T16:59:59", Some("2026-11-22T17:00:00")),
        ("5pm", "2026-11-22T17:00:00", Some("2026-11-23T17:00:00")),
        ("5pm", "2026-12-31T17:00:00", Some("2027-01-01T17:00:00")),
        (
            "Sunday 5pm",
            "2026-11-22T17:00:00",
            Some("2026-11-29T17:00:00"),
        ),
        (
            "Dec 24 4pm",
            "2026-12-24T16:00:00",
            Some("2027-12-24T16:00:00"),
        ),
        (
            "Feb 29 4pm",
            "2026-12-24T16:00:00",
            Some("2028-02-29T16:00:00"),
        ),
        (
            "Feb 29 4pm",
            "2097-12-24T16:00:00",
            Some("2104-02-29T16:00:00"),
        ),
        (
            "2026-11-22 4pm",
            "2026-11-22T15:00:00",
            Some("2026-11-22T16:00:00"),
        ),
        ("2026-11-22 4pm", "2026-11-22T16:00:00", None),
    ];
    for (text, from, expected) in table {
        assert_eq!(next(text, from), expected.map(at), "{text:?} after {from}");
    }
}

#[test]
fn before_gives_previous_occurrence() {
    let before = |text: &str, from: &str| Moment::parse(text).unwrap().before(at(from));
    let table = [
        ("5pm", "2026-11-22T17:00:00", Some("2026-11-21T17:00:00")),
        ("5pm", "2026-11-22T17:00:01", Some("2026-11-22T17:00:00")),
        (
            "Sunday 5pm",
            "2026-11-22T17:00:00",
            Some("2026-11-15T17:00:00"),
        ),
        (
            "Monday 5pm",
            "2026-11-22T17:00:00",
            Some("2026-11-16T17:00:00"),
        ),
        (
            "Feb 29 4pm",
            "2026-12-24T16:00:00",
            Some("2024-02-29T16:00:00"),
        ),
        ("2026-11-22 4pm", "2026-11-22T16:00:00", None),
    ];
    for (text, from, expected) in table {
        assert_eq!(
            before(text, from),
            expected.map(at),
            "{text:?} before {from}"
        );
    }
}
