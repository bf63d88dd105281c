//! Jobs over time as bars of an SVG. Drawn with classes only, so that the style sheet gives the colours
//! of both themes and the page needs no inline style.

use serde::Serialize;

/// Bars of a chart.
const BARS: usize = 60;

/// Height of the highest bar, in the units of the chart.
const HEIGHT: usize = 40;

/// A chart of the last hour.
#[derive(Debug, Serialize)]
pub(crate) struct Chart {
    bars: Vec<Bar>,
    width: usize,
    height: usize,
    /// The most jobs of one minute.
    most: usize,
    total: usize,
    failed: usize,
}

/// One minute.
#[derive(Debug, Serialize)]
struct Bar {
    x: usize,
    /// Of all jobs, then of those that failed.
    y: usize,
    height: usize,
    failed_y: usize,
    failed_height: usize,
    title: String,
}

const MINUTE: i64 = 60_000_000;

impl Chart {
    /// Jobs with the moments at which they were made, and whether something failed.
    pub(crate) fn last_hour(jobs: impl Iterator<Item = (i64, bool)>, now: i64) -> Self {
        let mut counts = [(0_usize, 0_usize); BARS];
        for (created, is_failed) in jobs {
            let ago = usize::try_from((now - created).max(0) / MINUTE).unwrap_or(usize::MAX);
            let place = BARS.checked_sub(ago.saturating_add(1));
            if let Some((all, failed)) = place.and_then(|place| counts.get_mut(place)) {
                *all += 1;
                *failed += usize::from(is_failed);
            }
        }
        let most = counts.iter().map(|(all, _)| *all).max().unwrap_or_default();
        let scaled = |count: usize| (count * HEIGHT).div_ceil(most.max(1));
        let bars = counts.iter().enumerate().map(|(place, (all, failed))| Bar {
            x: place * 10,
            y: HEIGHT - scaled(*all),
            height: scaled(*all),
            failed_y: HEIGHT - scaled(*failed),
            failed_height: scaled(*failed),
            title: format!(
                "{} min ago: {all} jobs, {failed} with failures",
                BARS - 1 - place
            ),
        });
        Self {
            bars: bars.collect(),
            width: BARS * 10,
            height: HEIGHT,
            most,
            total: counts.iter().map(|(all, _)| all).sum(),
            failed: counts.iter().map(|(_, failed)| failed).sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chart_counts_each_minute_of_the_last_hour() {
        let now = 100 * MINUTE;
        let jobs = [
            (now, true),
            (now - 1, false),
            (now - 59 * MINUTE, false),
            (now - 61 * MINUTE, true),
        ];
        let chart = Chart::last_hour(jobs.into_iter(), now);
        assert_eq!((chart.total, chart.failed, chart.most), (3, 1, 2));
        let (first, last) = (&chart.bars[0], &chart.bars[59]);
        assert_eq!(
            (first.height, last.height, last.failed_height),
            (20, 40, 20)
        );
    }
}
