//! Start of the HTTP API, behind everything that it asks.

use std::net::SocketAddr;
use std::sync::Arc;

use actix::{Addr, Recipient};
use parking_lot::Mutex;
use saltern_console::Console;
use saltern_netapi::Api;
use saltern_requests::Services;
use tokio_util::task::TaskTracker;

use super::Plan;
use crate::api::InsideMaster;
use crate::api::job_events::JobEvents;
use crate::api::net_api::{self, NetApi, RelayedCalls};
use crate::events::bus::Bus;
use crate::messages::{Accept, Explain, Fire};
use crate::tree::listeners::tls;

impl Plan {
    /// Starts the API where the configuration asks for it; gives the addresses that it is served on.
    pub(super) fn start_net_api(
        &self,
        services: &Arc<Services>,
        heard: &Arc<Bus>,
        (router, tracker, bus): (Recipient<Accept>, Recipient<Explain>, Recipient<Fire>),
        relayed: RelayedCalls,
    ) -> Vec<SocketAddr> {
        let servers = &self.config.net_api.servers;
        if servers.is_empty() {
            return Vec::new();
        }
        let events = JobEvents::new(&self.registry);
        heard.tap(events.clone());
        let master = InsideMaster {
            router,
            tracker,
            bus,
            events,
            feed: self.event_feed.clone(),
            services: services.clone(),
        };
        let api = Api::open(
            self.config.clone(),
            self.clock.clone(),
            &self.registry,
            Arc::new(master),
            &services.users.state,
        );
        let api = match api {
            Ok(api) => api,
            Err(error) => {
                let error = saltern_base::chain(&error);
                tracing::error!(error, "the API is not served");
                return Vec::new();
            }
        };
        let state = &services.users.state;
        let console = Console::open(self.config.cachedir.clone(), self.clock.clone(), state);
        let console = match console {
            Ok(console) => console,
            Err(error) => {
                let error = saltern_base::chain(&error);
                tracing::error!(error, "neither the console nor the API is served");
                return Vec::new();
            }
        };
        let (bound, addresses) =
            net_api::bind((&api, &console), servers, (&self.http, tls), relayed);
        let seed = net_api::Seed {
            servers: Arc::new(Mutex::new(bound)),
            stop: self.stop.clone(),
            serving: TaskTracker::new(),
        };
        let _: Addr<NetApi> = self.root.start_child(self.on_thread("api"), seed, 0);
        addresses
    }
}
