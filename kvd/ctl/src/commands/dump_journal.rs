//! `dump-journal`: what the journals of a device say, record by record.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use kvd_store::tablespace::geometry::journal_name;
use kvd_store::tablespace::journal::{Batch, JournalItem, JournalReader, Record};
use kvd_store::tablespace::{BLOCK_BYTES, WallTime};
use kvd_store::{ClearScope, Half};
use serde_json::{Value, json};

use crate::exit::codes;
use crate::key::to_hex;
use crate::offline::folder::{Folder, read_pieces};

/// Print what the journals of a device say, one record a line
///
/// For looking into what happened on a device. Reads only, and takes no lock: beside a running daemon, the end of a journal may be
/// in the middle of being written.
///
/// Both files are printed, the older journal first. A file is used again and again: batches of earlier journals may stand
/// behind the last one of the present journal and are printed too; recovery passes over them.
#[derive(Debug, Args)]
#[command(after_help = codes!("0 done, 1 no device"))]
pub(crate) struct DumpJournal {
    /// The device's directory, one of the daemon's --long-paths
    dir: PathBuf,
    /// Print one JSON object per record, and one for each stretch without a batch
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(asked: &DumpJournal) -> Result<ExitCode> {
    dump(&Folder::open(&asked.dir)?, asked.json, &mut io::stdout().lock())?;
    Ok(ExitCode::SUCCESS)
}

fn dump(folder: &Folder, json: bool, out: &mut impl Write) -> Result<()> {
    let tag = folder.superblock.tag();
    let mut journals = Vec::new();
    for half in [Half::A, Half::B] {
        if let Some(file) = folder.journal(half, false)? {
            journals.push((latest(tag, &file)?, half, file));
        }
    }
    journals.sort_by_key(|(latest, ..)| *latest);
    for (_, half, file) in &journals {
        let mut printer = Printer::new(out, *half, json);
        each_item(tag, file, |item| printer.item(&item))?;
        printer.end_gap()?;
    }
    Ok(())
}

/// The largest number of a journal in the file.
fn latest(tag: u64, file: &File) -> Result<u64> {
    let mut latest = 0;
    each_item(tag, file, |item| {
        if let JournalItem::Batch(batch) = item {
            latest = latest.max(batch.header.journal);
        }
        Ok(())
    })?;
    Ok(latest)
}

fn each_item(
    tag: u64,
    file: &File,
    mut each: impl FnMut(JournalItem<'_>) -> io::Result<()>,
) -> Result<()> {
    let mut reader = JournalReader::new(tag);
    let mut printed = Ok(());
    let mut take_all = |reader: &mut JournalReader| {
        while let Some(item) = reader.next_item() {
            if printed.is_ok() {
                printed = each(item);
            }
        }
    };
    read_pieces(file, 0, u64::MAX, |piece| {
        reader.feed(piece);
        take_all(&mut reader);
    })?;
    reader.end();
    take_all(&mut reader);
    Ok(printed?)
}

/// Prints what stands in one file.
struct Printer<'o, W> {
    out: &'o mut W,
    file: &'static str,
    json: bool,
    gap: Option<Gap>,
}

/// Blocks in a row that no whole batch begins in.
struct Gap {
    offset: u64,
    blocks: u64,
    /// The journal that a block among them seems to belong to.
    journal: Option<u64>,
}

impl<'o, W: Write> Printer<'o, W> {
    fn new(out: &'o mut W, half: Half, json: bool) -> Self {
        Self { out, file: journal_name(half), json, gap: None }
    }

    fn item(&mut self, item: &JournalItem<'_>) -> io::Result<()> {
        match item {
            JournalItem::Batch(batch) => {
                self.end_gap()?;
                self.batch(batch)
            }
            JournalItem::Unreadable { offset, journal } => {
                let gap = self.gap.get_or_insert(Gap { offset: *offset, blocks: 0, journal: None });
                gap.blocks += 1;
                gap.journal = gap.journal.or(*journal);
                Ok(())
            }
        }
    }

    fn batch(&mut self, batch: &Batch<'_>) -> io::Result<()> {
        let header = &batch.header;
        if !self.json {
            self.line(batch.offset, header)?;
        }
        let mut names = Vec::new();
        for record in batch.records() {
            if let Some(Record::Namespace { model, compat_key, .. }) = record {
                names.push((model, compat_key));
            }
            if self.json {
                let mut object = record.map_or_else(
                    || json!({"record": "unknown"}),
                    |record| as_json(&record, &names),
                );
                object["file"] = self.file.into();
                object["offset"] = batch.offset.into();
                object["journal"] = header.journal.into();
                object["sequence"] = header.sequence.into();
                writeln!(self.out, "{object}")?;
            } else {
                match record {
                    Some(record) => self.line(batch.offset, &format_args!("  {record}"))?,
                    None => self.line(
                        batch.offset,
                        &"  a record of a kind that this release does not know",
                    )?,
                }
            }
        }
        Ok(())
    }

    fn end_gap(&mut self) -> io::Result<()> {
        let Some(Gap { offset, blocks, journal }) = self.gap.take() else { return Ok(()) };
        if self.json {
            let gap = json!({"record": null, "file": self.file, "offset": offset, "blocks": blocks,
                "damaged_journal": journal});
            return writeln!(self.out, "{gap}");
        }
        let end = offset + blocks * BLOCK_BYTES;
        match journal {
            None => self.line(offset, &format_args!("no batch up to {end}")),
            Some(journal) => self.line(
                offset,
                &format_args!("no whole batch up to {end}, a damaged one of journal {journal}"),
            ),
        }
    }

    fn line(&mut self, offset: u64, what: &dyn Display) -> io::Result<()> {
        writeln!(self.out, "{} {offset:>11}  {what}", self.file)
    }
}

fn as_json(record: &Record<'_>, names: &[(&str, &str)]) -> Value {
    match record {
        Record::Namespace { number, model, compat_key } => json!({
            "record": "namespace", "number": number, "model": model, "compat_key": compat_key,
        }),
        Record::Insert(insert) => {
            let name = usize::try_from(insert.namespace).ok().and_then(|at| names.get(at));
            let expires_at = Some(insert.expires_at).filter(|at| *at != WallTime::NEVER);
            json!({
                "record": "insert",
                "model": name.map(|name| name.0),
                "compat_key": name.map(|name| name.1),
                "key": to_hex(insert.key),
                "len_bytes": insert.len_bytes,
                "retention": insert.class.as_str(),
                "start": insert.start,
                "generation": insert.generation,
                "checksum": format!("{:016x}", insert.checksum),
                "expires_at_ms": expires_at.map(|at| at.0),
                "lineage_bytes": insert.lineage.len(),
            })
        }
        Record::Remove { start, generation, reason } => json!({
            "record": "remove", "start": start, "generation": generation, "reason": reason.as_str(),
        }),
        Record::Clear { scope, below_generation } => {
            let (model, compat_key) = match scope {
                ClearScope::Everything => (None, None),
                ClearScope::Model(model) => (Some(*model), None),
                ClearScope::Namespace(of) => (Some(of.model), Some(of.compat_key)),
            };
            json!({
                "record": "clear", "model": model, "compat_key": compat_key,
                "below_generation": below_generation,
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::commands::verify::tests::make_device;

    fn dumped(folder: &Folder, json: bool) -> String {
        let mut out = Vec::new();
        dump(folder, json, &mut out).expect("dumped");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn every_block_that_came_has_its_line() {
        let parent = tempfile::tempdir().expect("a folder");
        make_device(parent.path());
        let folder = Folder::open(parent.path()).expect("a device");
        let text = dumped(&folder, false);
        let inserts = text.lines().filter(|line| line.contains("insert generation"));
        assert_eq!(inserts.count(), 20, "{text}");
        let records = dumped(&folder, true);
        let records: Vec<Value> =
            records.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        let block = records.iter().find(|record| record["key"] == "07").expect("a record");
        assert_eq!((&block["record"], &block["len_bytes"]), (&json!("insert"), &json!(63_000)));
        assert_eq!((&block["model"], &block["compat_key"]), (&json!("m"), &json!("c")));
        assert_eq!(block["expires_at_ms"], Value::Null);
        let journals: Vec<u64> =
            records.iter().filter_map(|record| record["journal"].as_u64()).collect();
        assert!(journals.is_sorted(), "the older journal first: {journals:?}");
    }

    #[test]
    fn a_damaged_batch_is_named() {
        let parent = tempfile::tempdir().expect("a folder");
        make_device(parent.path());
        let folder = Folder::open(parent.path()).expect("a device");
        let whole = dumped(&folder, false);
        let first = whole.lines().find(|line| line.contains("insert")).expect("a record");
        let half = if first.starts_with(journal_name(Half::A)) { Half::A } else { Half::B };
        let journal = folder.journal(half, true).expect("opened").expect("there");
        journal.write_all_at(b"?", 100).expect("written");
        let text = dumped(&folder, false);
        assert!(text.contains("a damaged one of journal "), "{text}");
        let gap = dumped(&folder, true);
        assert!(gap.contains(r#""damaged_journal":2"#), "{gap}");
    }
}
