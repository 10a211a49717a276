//! Tablespaces in files of memory: lives, crashes and damage against a naive account.

mod conflicts;
mod damage;
mod files;
mod golden;
mod life;
mod model;
mod size;
