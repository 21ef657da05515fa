use crate::driver::{DriveConfig, drive};
use crate::process::Scratch;
use crate::run::RunResult;
use crate::systems::{Case, System, drive_config};
use crate::workload::create_databases;
use crate::{Context, Result};

pub(super) struct Stock {
    name: &'static str,
    synchronous: &'static str,
}

impl Stock {
    pub(super) fn new(name: &'static str, synchronous: &'static str) -> Stock {
        Stock { name, synchronous }
    }
}

impl System for Stock {
    fn name(&self) -> &str {
        self.name
    }

    fn prepare(&mut self, _context: &Context) -> Result<()> {
        Ok(())
    }

    fn run(&mut self, context: &Context, case: Case) -> Result<RunResult> {
        let scratch = Scratch::new(&context.base)?;
        let databases = create_databases(scratch.path(), case.layout.databases(case.clients))?;
        let config = drive_config(context, self, case, &databases);
        drive(&context.worker, &DriveConfig { synchronous: Some(self.synchronous.into()), ..config }, &[])
    }
}
