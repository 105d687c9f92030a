/* tutti.h - all public headers except comm_mpi.h, which needs mpi.h. */
#ifndef TUTTI_TUTTI_H
#define TUTTI_TUTTI_H
#include "tutti/compiler.h"
#include "tutti/status.h"
#include "tutti/log.h"
#include "tutti/memory.h"
#include "tutti/topology.h"
#include "tutti/stream.h"
#include "tutti/trace.h"
#include "tutti/options.h"
#include "tutti/cpu.h"
#include "tutti/linear.h"
#include "tutti/model.h"
#include "tutti/load.h"
#include "tutti/tokenizer.h"
#include "tutti/plan.h"
#include "tutti/comm.h"
#include "tutti/exchange.h"
#include "tutti/balance.h"
#include "tutti/attention.h"
#include "tutti/moe.h"
#include "tutti/engine.h"
#endif
