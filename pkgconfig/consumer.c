/* SPDX-License-Identifier: Apache-2.0 */
/* What a stranger builds with nothing but what pkg-config says. */
#include <ringred/ringred.h>

#include <stdio.h>

int main(void)
{
    ringred_config config;
    ringred_comm *comm;
    ringred_error why;
    double x = 20.5;

    ringred_config_init(&config, sizeof config);
    ringred_error_init(&why);
    config.rank = 0;
    config.size = 1;
    if (ringred_comm_create(&config, &comm, &why) < 0) {
        fprintf(stderr, "%s\n", why.text);
        return 1;
    }
    if (ringred_allreduce(comm, &x, &x, 1, RINGRED_FLOAT64, RINGRED_SUM) < 0 || x != 20.5)
        return 1;
    printf("ringred %s, headers %s\n", ringred_version(), RINGRED_VERSION);
    return ringred_comm_destroy(comm) < 0 || ringred_abi_version() != RINGRED_ABI_VERSION;
}
