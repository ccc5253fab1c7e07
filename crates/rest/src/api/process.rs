//! Metrics of the process, under the names that all Prometheus clients give them, from Linux's
//! `/proc/self`.

use std::fs;
use std::sync::LazyLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;

/// Time for which a measurement of this process's metrics is reused.
const PERIOD: Duration = Duration::from_secs(1);

/// Name of a metric, its type, its help and its value.
type Measure = (&'static str, &'static str, &'static str, f64);

/// Last measurement of this process's metrics, with its time.
static LAST: Mutex<Option<(Instant, Vec<Measure>)>> = Mutex::const_new(None);

/// Returns this process's metrics. They are measured at most once a second, one measurement at a
/// time, on a thread that does not serve clients: to count many open files takes milliseconds.
pub(crate) async fn measures() -> Vec<Measure> {
    let mut last = LAST.lock().await;
    if let Some((at, measures)) = &*last
        && at.elapsed() < PERIOD
    {
        return measures.clone();
    }
    let measures = spawn_blocking(measure).await.unwrap_or_default();
    *last = Some((Instant::now(), measures.clone()));
    measures
}

/// Measures this process's metrics. A metric that the system does not report is left out.
fn measure() -> Vec<Measure> {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let files = fs::read_dir("/proc/self/fd").ok().map(|files| files.count() as f64);
    let files_max = getrlimit(Resource::Nofile).current.map(|max| max as f64);
    let ticks = clock_ticks_per_second() as f64;
    let cpu = field(&stat, 14).zip(field(&stat, 15)).map(|(user, system)| (user + system) / ticks);
    let start = BOOT.zip(field(&stat, 22)).map(|(boot, since)| boot + since / ticks);
    let resident = field(&stat, 24).map(|pages| pages * page_size() as f64);
    let rows = [
        ("process_cpu_seconds_total", "counter", "CPU time of the process in seconds, user and system.", cpu),
        ("process_resident_memory_bytes", "gauge", "Bytes of the process in physical memory.", resident),
        ("process_virtual_memory_bytes", "gauge", "Bytes of the process's address space.", field(&stat, 23)),
        ("process_start_time_seconds", "gauge", "Start of the process, in seconds since 1970.", start),
        ("process_open_fds", "gauge", "Open file descriptors of the process.", files),
        ("process_max_fds", "gauge", "Largest number of open file descriptors.", files_max),
    ];
    rows.into_iter().filter_map(|(name, kind, help, value)| Some((name, kind, help, value?))).collect()
}

/// Field of `/proc/self/stat` by its number in proc(5), from the third field on. The second one is
/// the program's name in parentheses, which may contain spaces.
fn field(stat: &str, number: usize) -> Option<f64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_whitespace().nth(number - 3)?.parse().ok()
}

/// Time at which the machine was started, in seconds since 1970; `None` if the clock is set to a
/// time before it. It is measured once, because later settings of the clock would move it. Services
/// of systemd with `ProcSubset=pid` cannot read it from `/proc/stat`.
static BOOT: LazyLock<Option<f64>> = LazyLock::new(|| {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    let up = Duration::try_from(clock_gettime(ClockId::Boottime)).ok()?;
    Some(now.checked_sub(up)?.as_secs_f64())
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_started_a_moment_ago() {
        let value = |name: &str| measure().into_iter().find(|measure| measure.0 == name).unwrap().3;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
        let age = now - value("process_start_time_seconds");
        assert!((-1.0..3_600.0).contains(&age), "{age}");
        assert!(value("process_open_fds") <= value("process_max_fds"));
    }

    #[test]
    fn a_program_name_with_spaces_does_not_shift_the_fields() {
        let stat = "7 (a (b) c) S 1 7 7 0 -1 4194304 10 0 0 0 150 50 0 0 20 0 3 0 500 4096 3 18446744073709551615";
        assert_eq!(
            [14, 15, 22, 23, 24].map(|number| field(stat, number)),
            [150, 50, 500, 4096, 3].map(|it| Some(f64::from(it)))
        );
        assert_eq!(field("", 14), None);
    }
}
