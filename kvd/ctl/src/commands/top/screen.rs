//! The live view on a terminal.

use std::time::{Duration, Instant};

use anyhow::Result;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Style, Stylize};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Paragraph, Row, Table};
use ratatui::{DefaultTerminal, Frame};

use super::picture::{HEAD, NUMBERS_FROM, Picture};

/// Shows pictures until somebody presses `q`, Escape or Control-C. While the daemon gives none, the
/// last one stays, and the foot says what is wrong.
pub(crate) fn show(
    first: Picture,
    interval: Duration,
    mut look: impl FnMut() -> Result<Picture>,
) -> Result<()> {
    let mut terminal = ratatui::try_init()?;
    let shown = watch(&mut terminal, first, interval, &mut look);
    ratatui::try_restore()?;
    shown
}

fn watch(
    terminal: &mut DefaultTerminal,
    mut picture: Picture,
    interval: Duration,
    look: &mut impl FnMut() -> Result<Picture>,
) -> Result<()> {
    let mut trouble = None;
    loop {
        let next = Instant::now() + interval;
        terminal.draw(|frame| draw(frame, &picture, trouble.as_deref()))?;
        while event::poll(next.saturating_duration_since(Instant::now()))? {
            match event::read()? {
                Event::Key(key) if key.kind == KeyEventKind::Press => {
                    let control_c = key.modifiers.contains(KeyModifiers::CONTROL)
                        && key.code == KeyCode::Char('c');
                    if control_c || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc) {
                        return Ok(());
                    }
                }
                Event::Resize(..) => {
                    terminal.draw(|frame| draw(frame, &picture, trouble.as_deref()))?;
                }
                _ => {}
            }
        }
        trouble = match look() {
            Ok(next) => {
                picture = next;
                None
            }
            Err(error) => Some(format!("{error:#}")),
        };
    }
}

fn draw(frame: &mut Frame<'_>, picture: &Picture, trouble: Option<&str>) {
    let height = u16::try_from(picture.summary.len()).unwrap_or(u16::MAX);
    let [summary, sessions, foot] =
        Layout::vertical([Constraint::Max(height + 1), Constraint::Min(2), Constraint::Max(1)])
            .areas(frame.area());
    let lines: Vec<Line<'_>> = picture.summary.iter().map(|line| Line::raw(&**line)).collect();
    frame.render_widget(Paragraph::new(lines), summary);
    frame.render_widget(table(picture), sessions);
    let last_line = match trouble {
        None => Line::raw("q: leave").dim(),
        Some(trouble) => {
            Line::raw(format!("q: leave; the figures are old: {trouble}")).bold().red()
        }
    };
    frame.render_widget(last_line, foot);
}

fn table(picture: &Picture) -> Table<'_> {
    let width = |column: usize| {
        let cells = picture.sessions.iter().map(|row| row.cells[column].chars().count());
        let widest = cells.chain([HEAD[column].len()]).max().unwrap_or(0);
        Constraint::Length(u16::try_from(widest).unwrap_or(u16::MAX))
    };
    let aligned = |(column, cell): (usize, String)| {
        let text = Text::raw(cell);
        if column < NUMBERS_FROM { text } else { text.right_aligned() }
    };
    let rows = picture.sessions.iter().map(|session| {
        let style = if session.is_at_cap { Style::new().bold().red() } else { Style::new() };
        Row::new(session.cells.iter().cloned().enumerate().map(aligned)).style(style)
    });
    let head = HEAD.iter().map(|&title| title.to_owned()).enumerate().map(aligned);
    Table::new(rows, (0..HEAD.len()).map(width)).header(Row::new(head).bold()).column_spacing(2)
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::picture::Shown;
    use super::*;

    #[test]
    fn the_picture_is_on_the_screen() {
        let mut cells: [String; HEAD.len()] = std::array::from_fn(|column| format!("c{column}"));
        cells[1] = "leases".into();
        let picture = Picture {
            summary: vec!["kvd-00000001, up 5s".into()],
            sessions: vec![Shown { cells, is_at_cap: true }],
        };
        let mut terminal = Terminal::new(TestBackend::new(100, 8)).expect("a terminal");
        terminal.draw(|frame| draw(frame, &picture, None)).expect("drawn");
        let screen = terminal.backend().to_string();
        for expected in ["kvd-00000001, up 5s", "CLIENT", "leases", "c10", "q: leave"] {
            assert!(screen.contains(expected), "{expected} in\n{screen}");
        }
        let mut small = Terminal::new(TestBackend::new(3, 1)).expect("a terminal");
        small.draw(|frame| draw(frame, &picture, None)).expect("drawn, however small");
        terminal.draw(|frame| draw(frame, &picture, Some("no daemon"))).expect("drawn");
        let screen = terminal.backend().to_string();
        assert!(screen.contains("c10") && screen.contains("old: no daemon"), "{screen}");
    }
}
