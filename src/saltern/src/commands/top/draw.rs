//! Layout of the screen: a head with the figures of the whole master, the open list or panel, and a
//! foot with the keys or a notice to the operator.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Clear, Paragraph, Row, Table};
use saltern_cli::terminal::plain;

use super::head;
use super::panel;
use super::state::State;
use super::table::{Tone, columns, entries};
use super::view::{KillPrompt, Panel, Tab, View};

/// Most lines of figures above the list, where the terminal is narrow.
const MAX_FIGURES: usize = 12;

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const CHOSEN: Style = Style::new().add_modifier(Modifier::REVERSED);
const DIM: Style = Style::new().add_modifier(Modifier::DIM);

/// Draws everything; `now` in microseconds since 1970.
pub(super) fn draw(frame: &mut Frame<'_>, state: &State, view: &View, now: i64) {
    let area = frame.area();
    let figures = head::wrapped(&head::lines(state, now), usize::from(area.width));
    let room = MAX_FIGURES.min(usize::from(area.height / 2));
    let mut lines: Vec<Line<'_>> = figures.into_iter().take(room).map(Line::from).collect();
    if let Some(first) = lines.first_mut() {
        first.style = BOLD;
    }
    lines.push(tabs(view));
    let parts = Layout::vertical([
        Constraint::Length(u16::try_from(lines.len()).unwrap_or(u16::MAX)),
        Constraint::Min(1),
        Constraint::Length(1),
    ]);
    let [top, middle, bottom] = parts.areas(area);
    frame.render_widget(Paragraph::new(lines), top);
    match &view.panel {
        Some(open) => {
            let text = panel::of(open, state, usize::from(middle.width));
            draw_panel(frame, view, text, middle);
        }
        None => draw_list(frame, state, view, middle, now),
    }
    frame.render_widget(foot(state, view), bottom);
    if let Some(question) = &view.question {
        draw_question(frame, question);
    }
}

fn tabs(view: &View) -> Line<'static> {
    let mut spans = Vec::new();
    for (index, tab) in Tab::ALL.into_iter().enumerate() {
        let style = if tab == view.tab {
            CHOSEN
        } else {
            Style::new()
        };
        spans.push(Span::styled(
            format!(" {} {} ", index + 1, tab.title()),
            style,
        ));
        spans.push(Span::raw(" "));
    }
    if view.is_typing || !view.filter.is_empty() {
        let end = if view.is_typing { "_" } else { "" };
        // An id that was chosen may stand in it.
        let filter = plain(&view.filter, usize::MAX);
        spans.push(Span::styled(format!("filter: {filter}{end}"), BOLD));
    }
    Line::from(spans)
}

fn draw_list(frame: &mut Frame<'_>, state: &State, view: &View, area: Rect, now: i64) {
    let entries = entries(state, view.tab, &view.filter);
    // One line is for the titles.
    let room = usize::from(area.height.saturating_sub(1));
    let (chosen, first) = view.window(&entries, room);
    let shown = entries.iter().enumerate().skip(first).take(room);
    let rows = shown.map(|(index, entry)| {
        let style = style(entry.tone());
        let style = if index == chosen {
            style.patch(CHOSEN)
        } else {
            style
        };
        Row::new(entry.cells(now)).style(style)
    });
    let columns = columns(view.tab);
    let widths = columns.iter().map(|column| match column.width {
        Some(width) => Constraint::Length(width),
        None => Constraint::Fill(1),
    });
    let titles = Row::new(columns.iter().map(|column| column.title)).style(BOLD);
    frame.render_widget(Table::new(rows, widths).header(titles), area);
}

const fn style(tone: Tone) -> Style {
    match tone {
        Tone::Plain => Style::new(),
        Tone::Good => Style::new().fg(Color::Green),
        Tone::Warning => Style::new().fg(Color::Yellow),
        Tone::Bad => Style::new().fg(Color::Red),
        Tone::Dim => DIM,
    }
}

fn draw_panel(frame: &mut Frame<'_>, view: &View, panel: panel::Text, area: Rect) {
    let block = Block::new().borders(Borders::TOP).title(panel.title);
    let room = usize::from(block.inner(area).height);
    let first = view.panel_window(panel.lines.len(), room);
    let shown = panel.lines.into_iter().skip(first).take(room);
    let text: Vec<Line<'_>> = shown.map(Line::from).collect();
    frame.render_widget(Paragraph::new(text).block(block), area);
}

fn foot(state: &State, view: &View) -> Paragraph<'static> {
    if !state.said.is_empty() {
        return Paragraph::new(state.said.clone()).style(BOLD);
    }
    let paused = if state.events.is_paused {
        "EVENTS STAND STILL  "
    } else {
        ""
    };
    let keys = match (view.is_typing, &view.panel) {
        (true, _) => "type to filter   Enter keep   Esc clear",
        (_, Some(Panel::Job(_))) => "↑↓ scroll   k end the job   Esc back",
        (_, Some(_)) => "↑↓ scroll   Esc back",
        _ => {
            "1-5 view   ↑↓ choose   Enter look into   / filter   k end a job   p pause   ? help   q quit"
        }
    };
    Paragraph::new(format!("{paused}{keys}")).style(DIM)
}

/// A window in the middle that asks before a job is ended.
fn draw_question(frame: &mut Frame<'_>, question: &KillPrompt) {
    let lines = vec![
        Line::from(format!(
            "{} on {} minions that have not returned",
            question.fun, question.missing
        )),
        Line::default(),
        Line::from("t  terminate it (saltutil.term_job)"),
        Line::from("K  kill it (saltutil.kill_job)"),
        Line::from("any other key leaves it alone"),
    ];
    let title = format!(" End job {}? ", question.jid);
    let area = frame.area();
    let width = area.width.min(64);
    let height = area.height.min(lines.len() as u16 + 2);
    let window = Rect {
        x: area.width.saturating_sub(width) / 2,
        y: area.height.saturating_sub(height) / 2,
        width,
        height,
    };
    frame.render_widget(Clear, window);
    let block = Block::bordered().title(title);
    frame.render_widget(Paragraph::new(lines).block(block), window);
    question.is_shown.set(true);
}
