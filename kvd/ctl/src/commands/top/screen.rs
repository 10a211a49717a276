//! The live view on a terminal.

use std::time::{Duration, Instant};

use anyhow::Result;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Style, Stylize};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Paragraph, Row, Table};
use ratatui::{DefaultTerminal, Frame};

use super::columns::{GAP, broken};
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
    let width = usize::from(frame.area().width);
    let lines = picture.summary.iter().flat_map(|line| broken(line, width));
    let lines: Vec<Line<'_>> = lines.map(Line::raw).collect();
    let foot = match trouble {
        None => vec![Line::raw("q: leave").dim()],
        Some(trouble) => {
            let words = format!("q: leave; the figures are old: {trouble}");
            let lines = broken(&words, width).into_iter();
            lines.map(|line| Line::raw(line).bold().red()).collect()
        }
    };
    let height = |lines: &[Line<'_>]| u16::try_from(lines.len()).unwrap_or(u16::MAX);
    let [above, sessions, below] = Layout::vertical([
        Constraint::Max(height(&lines).saturating_add(1)),
        Constraint::Min(2),
        Constraint::Max(height(&foot)),
    ])
    .areas(frame.area());
    frame.render_widget(Paragraph::new(lines), above);
    frame.render_widget(table(picture, width), sessions);
    frame.render_widget(Paragraph::new(foot), below);
}

fn table(picture: &Picture, width: usize) -> Table<'_> {
    let columns = picture.columns(width);
    let aligned = |(column, cell): (usize, String)| {
        let text = Text::raw(cell);
        if column < NUMBERS_FROM { text } else { text.right_aligned() }
    };
    let of = |cells: &[String]| {
        let cells = columns.iter().map(|(column, _)| aligned((*column, cells[*column].clone())));
        Row::new(cells.collect::<Vec<_>>())
    };
    let rows = picture.sessions.iter().map(|session| {
        let style = if session.is_at_cap { Style::new().bold().red() } else { Style::new() };
        of(&session.cells).style(style)
    });
    let widths = columns.iter().map(|(column, widest)| {
        let widest = u16::try_from(*widest).unwrap_or(u16::MAX);
        // A long name is cut off before a figure is.
        if *column == 0 { Constraint::Max(widest) } else { Constraint::Length(widest) }
    });
    let gap = u16::try_from(GAP).unwrap_or(u16::MAX);
    let head = of(&HEAD.map(str::to_owned)).bold();
    Table::new(rows, widths).header(head).column_spacing(gap)
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::picture::Shown;
    use super::*;

    #[test]
    fn a_narrow_screen_shows_what_matters() {
        let cells = [
            "vllm-worker-0",
            "leases",
            "123456",
            "1234567",
            "1000",
            "1,234",
            "2,048",
            "16",
            "512.00 MiB",
            "12",
            "1h01m",
        ];
        let line = "kvd-00000001, up 5s, arena 64.00 GiB of transparent pages, 1.25 GiB free";
        let picture = Picture {
            summary: vec![line.into()],
            sessions: vec![Shown { cells: cells.map(str::to_owned), is_at_cap: true }],
        };
        let shown = |width| {
            let mut terminal = Terminal::new(TestBackend::new(width, 8)).expect("a terminal");
            terminal.draw(|frame| draw(frame, &picture, None)).expect("drawn");
            terminal.backend().to_string()
        };
        let narrow = shown(60);
        for whole in
            ["1.25 GiB free", "vllm-worker-0", "leases", "1234567", "512.00 MiB", "2,048", "HELD"]
        {
            assert!(narrow.contains(whole), "{whole} in\n{narrow}");
        }
        assert!(!narrow.contains("UID") && !narrow.contains("1h01m"), "\n{narrow}");
        assert!(cells.iter().all(|cell| shown(120).contains(cell)), "\n{}", shown(120));
    }

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
