/* phases.h - where the time of all ranks went: a table (--log-view) and one timeline (--trace).
 * MPI: collective on the session's world; statuses are agreed. */
#ifndef TTI_CLI_PHASES_H
#define TTI_CLI_PHASES_H
#include "session.h"

/* Prints, on stderr of rank 0, per phase: calls and bytes over all ranks, the longest time of a
 * rank and which one that is, and longest / shortest. */
tt_status tti_cli_phases_print(tti_cli_session *session);
/* Writes every rank's spans to session->trace as one file for ui.perfetto.dev, and closes it. */
tt_status tti_cli_trace_gather(tti_cli_session *session);
/* The same of this rank alone, when others may never answer again. MPI: no calls. */
void tti_cli_phases_of_lost(const tti_cli_session *session);
void tti_cli_trace_of_lost(tti_cli_session *session);

#endif
