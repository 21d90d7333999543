/* ferry.h - all of ferry's public headers.
 *
 * Thread safety: said in each header. */
#ifndef FERRY_FERRY_H
#define FERRY_FERRY_H

#include <ferry/channel.h>
#include <ferry/ckpt.h>
#include <ferry/commit.h>
#include <ferry/digest.h>
#include <ferry/dtype.h>
#include <ferry/ir.h>
#include <ferry/kernel.h>
#include <ferry/layout.h>
#include <ferry/log.h>
#include <ferry/mem.h>
#include <ferry/model.h>
#include <ferry/pipeline.h>
#include <ferry/plan.h>
#include <ferry/reshard.h>
#include <ferry/rules.h>
#include <ferry/safetensors.h>
#include <ferry/sched.h>
#include <ferry/service.h>
#include <ferry/status.h>
#include <ferry/transform.h>
#include <ferry/version.h>
#include <ferry/view.h>
#include <ferry/world.h>

#endif
