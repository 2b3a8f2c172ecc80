/* SPDX-License-Identifier: BSD-3-Clause */
/* The records that ranks send each other at rendezvous, and their check. */
#ifndef SYMMEM_CORE_RENDEZVOUS_RENDEZVOUS_RECORD_H
#define SYMMEM_CORE_RENDEZVOUS_RENDEZVOUS_RECORD_H

#include "rendezvous/rendezvous.h"

/* Fills rendezvous->own from the other members. */
void sm_rdv_record_fill(sm_rendezvous *rendezvous);
/* Checks all records, with the same result on every rank. Sets exchange_data, overlap and
 * cross_host. */
symmem_status sm_rdv_records_check(sm_rendezvous *rendezvous);
/* The first makes the sent form of an export. The second makes an export of rank r's sent form that
 * this rank may use. */
sm_rdv_share sm_rdv_share_pack(const symmem_share *share);
symmem_share sm_rdv_share_unpack(const sm_rendezvous *rendezvous, int32_t rank,
                                 const sm_rdv_share *share, int fd);

#endif
